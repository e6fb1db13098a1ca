module {
  coreai.graph @main(%arg0: tensor<si32> {coreai.name = "n"}, %arg1: tensor<3xf32> {coreai.name = "x"}) -> (tensor<3xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<1> : tensor<si32>
    %1 = coreai.constant dense<0> : tensor<si32>
    %2:2 = coreai.while %1, %arg1 {
    ^bb0(%arg2: tensor<si32>, %arg3: tensor<3xf32>):
      %3 = coreai.not_equal %arg2, %arg0 : (tensor<si32>, tensor<si32>) -> tensor<i1>
      coreai.condition %3, %arg2, %arg3 : (tensor<i1>, tensor<si32>, tensor<3xf32>)
    } do {
    ^bb0(%arg2: tensor<si32>, %arg3: tensor<3xf32>):
      %3 = coreai.add %arg2, %0 : (tensor<si32>, tensor<si32>) -> tensor<si32>
      %4 = coreai.add %arg3, %arg3 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      coreai.yield %3, %4 : tensor<si32>, tensor<3xf32>
    } : (tensor<si32>, tensor<3xf32>) -> (tensor<si32>, tensor<3xf32>)
    coreai.output %2#1 : tensor<3xf32>
  }
}
