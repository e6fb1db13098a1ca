module {
  coreai.graph private noinline @helper(%arg0: tensor<2x3xf32> {coreai.name = "a"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
    %0 = coreai.exp %arg0 : tensor<2x3xf32> -> tensor<2x3xf32>
    coreai.output %0 : tensor<2x3xf32>
  }
  coreai.graph @main(%arg0: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
    %0 = coreai.invoke @helper(%arg0)  : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = coreai.add %0, %arg0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    coreai.output %1 : tensor<2x3xf32>
  }
  coreai.graph @other(%arg0: tensor<2x3xf32> {coreai.name = "x"}, %arg1: tensor<2x3xf32> {coreai.name = "z"}) -> (tensor<2x3xf32> {coreai.name = "y"}, tensor<2x3xf32> {coreai.name = "y1"}) {
    %0 = coreai.mul %arg0, %arg1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    coreai.output %0, %arg0 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
