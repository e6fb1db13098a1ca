module {
  coreai.graph @main(%arg0: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
    %0 = coreaix.copy_with_constraints(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32, #coreaix.hw_constraints<IOSurface, alignments: [1x2x64], interleave: [1x3]>>
    %1 = coreaix.copy_discarding_constraints(%0) : (tensor<2x3xf32, #coreaix.hw_constraints<IOSurface, alignments: [1x2x64], interleave: [1x3]>>) -> tensor<2x3xf32>
    coreai.output %1 : tensor<2x3xf32>
  }
}
