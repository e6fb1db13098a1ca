module {
  coreai.graph @main(%arg0: tensor<si32> {coreai.name = "x"}) -> (tensor<?xsi32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<9> : tensor<si32>
    %1 = coreai.constant dense<2> : tensor<si32>
    %2 = coreai.range %arg0, %0, %1 : (tensor<si32>, tensor<si32>, tensor<si32>) -> tensor<?xsi32>
    coreai.output %2 : tensor<?xsi32>
  }
}
