module {
  coreai.graph @main(%arg0: tensor<1x2x3x3xf32> {coreai.name = "x"}) -> (tensor<1x2x6x6xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<[1, 2, 6, 6]> : tensor<4xsi32>
    %1 = coreai.constant dense<[1.000000e+00, 1.000000e+00, 2.000000e+00, 2.000000e+00]> : tensor<4xf32>
    %2 = coreai.constant dense<0.000000e+00> : tensor<4xf32>
    %3 = coreai.interpolate %arg0, %0, %1, %2 {interpolation_mode = #coreai.interpolation_mode<linear>} : (tensor<1x2x3x3xf32>, tensor<4xsi32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x2x6x6xf32>
    coreai.output %3 : tensor<1x2x6x6xf32>
  }
}
