module {
  coreai.graph @main(%arg0: tensor<2x5xf32> {coreai.name = "x"}) -> (tensor<2x5xf32> {coreai.name = "y"}) {
    %0 = coreai.gelu %arg0 approximate = <tanh> : tensor<2x5xf32> -> tensor<2x5xf32>
    coreai.output %0 : tensor<2x5xf32>
  }
}
