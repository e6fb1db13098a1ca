module {
  coreai.graph @main(%arg0: tensor<1x2x32xf32> {coreai.name = "x"}) -> (tensor<1x2x32xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense_resource<resource_8758375537451263038> : tensor<1x32x32xf32>
    %1 = coreai.constant dense_resource<resource_14944339468276786770> : tensor<1x32x32xf32>
    %2 = coreai.batch_matmul %arg0, %1 : (tensor<1x2x32xf32>, tensor<1x32x32xf32>) -> tensor<1x2x32xf32>
    %3 = coreai.batch_matmul %arg0, %0 : (tensor<1x2x32xf32>, tensor<1x32x32xf32>) -> tensor<1x2x32xf32>
    %4 = coreai.add %2, %3 : (tensor<1x2x32xf32>, tensor<1x2x32xf32>) -> tensor<1x2x32xf32>
    coreai.output %4 : tensor<1x2x32xf32>
  }
}

