module {
  coreai.graph @main(%arg0: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
    %0 = coreai.delegate<"BNNS">(%arg0) {resource = array<i8: 1, 2, 3>} : (tensor<4xf32>) -> tensor<4xf32>
    coreai.output %0 : tensor<4xf32>
  }
}
