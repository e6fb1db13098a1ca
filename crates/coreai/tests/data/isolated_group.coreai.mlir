module {
  coreai.graph @main(%arg0: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
    %0 = coreai.isolated_group<"Interpreter">(%arg0) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%arg1: tensor<4xf32>):
      %1 = coreai.relu %arg1 : (tensor<4xf32>) -> tensor<4xf32>
      coreai.yield %1 : tensor<4xf32>
    }
    coreai.output %0 : tensor<4xf32>
  }
}
