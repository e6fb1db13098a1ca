module {
  coreai.graph @main(%arg0: tensor<2x4xf32> {coreai.name = "x"}) -> (tensor<2x7xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<[0, 0, 1, 2]> : tensor<4xui32>
    %1 = coreai.constant dense<5.000000e-01> : tensor<f32>
    %2 = coreai.pad %arg0, %0, %1 mode = <reflect> : (tensor<2x4xf32>, tensor<4xui32>, tensor<f32>) -> tensor<2x7xf32>
    coreai.output %2 : tensor<2x7xf32>
  }
}
