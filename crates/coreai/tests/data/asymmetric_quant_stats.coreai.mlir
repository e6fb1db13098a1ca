module {
  coreai.graph @main(%arg0: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<3xf32> {coreai.name = "y"}, tensor<3xsi32> {coreai.name = "y1"}) {
    %0 = coreai.constant dense<[-128, 127]> : tensor<2xsi32>
    %1 = coreai.constant dense<1> : tensor<si32>
    %scale, %zero_point = coreai.asymmetric_quantization_statistics %arg0, %0, %1 : (tensor<2x3xf32>, tensor<2xsi32>, tensor<si32>) -> (tensor<3xf32>, tensor<3xsi32>)
    coreai.output %scale, %zero_point : tensor<3xf32>, tensor<3xsi32>
  }
}
