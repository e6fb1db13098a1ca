module {
  coreai.graph @main(%arg0: tensor<2x5xf16> {coreai.name = "x"}) -> (tensor<2x5xf16> {coreai.name = "y"}) {
    %0 = coreai.relu %arg0 : (tensor<2x5xf16>) -> tensor<2x5xf16>
    coreai.output %0 : tensor<2x5xf16>
  }
}
