module {
  coreai.graph @main(%arg0: tensor<3x6xf32> {coreai.name = "x"}, %arg1: tensor<2x1xsi32> {coreai.name = "i"}, %arg2: tensor<2x6xf32> {coreai.name = "u"}) -> (tensor<3x6xf32> {coreai.name = "y"}) {
    %0 = coreai.scatter_nd %arg0 with %arg2 at %arg1 {
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      coreai.yield %arg4 : tensor<f32>
    } : (tensor<3x6xf32>, tensor<2x6xf32>, tensor<2x1xsi32>) to tensor<3x6xf32>
    coreai.output %0 : tensor<3x6xf32>
  }
}
