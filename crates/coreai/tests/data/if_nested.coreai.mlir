module {
  coreai.graph @main(%arg0: tensor<i1> {coreai.name = "c"}, %arg1: tensor<i1> {coreai.name = "d"}, %arg2: tensor<3xf32> {coreai.name = "x"}) -> (tensor<3xf32> {coreai.name = "y"}, tensor<3xf32> {coreai.name = "y1"}) {
    %0:2 = coreai.if %arg0 {
      %1 = coreai.if %arg1 {
        %2 = coreai.exp %arg2 : tensor<3xf32> -> tensor<3xf32>
        coreai.yield %2 : tensor<3xf32>
      } else {
        %2 = coreai.sin %arg2 : tensor<3xf32> -> tensor<3xf32>
        coreai.yield %2 : tensor<3xf32>
      } : tensor<i1> -> tensor<3xf32>
      coreai.yield %1, %arg2 : tensor<3xf32>, tensor<3xf32>
    } else {
      %1 = coreai.cos %arg2 : tensor<3xf32> -> tensor<3xf32>
      coreai.yield %arg2, %1 : tensor<3xf32>, tensor<3xf32>
    } : tensor<i1> -> tensor<3xf32>, tensor<3xf32>
    coreai.output %0#0, %0#1 : tensor<3xf32>, tensor<3xf32>
  }
}
