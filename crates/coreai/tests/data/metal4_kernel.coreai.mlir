module {
  coreai.graph @main(%arg0: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<[4, 1, 1]> : tensor<3xui32>
    %1 = coreai.constant dense<4> : tensor<1xui32>
    %2 = coreaix.copy_with_constraints(%arg0) : (tensor<4xf32>) -> tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>
    %3 = coreai.metal4_kernel kernel_args(%2), threads_per_grid %0, threads_per_thread_group %0, result_shapes(%1) {kernel_name = "k", kernel_source = "kernel void k() {}"} : (tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>, tensor<3xui32>, tensor<3xui32>, tensor<1xui32>) -> tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>
    %4 = coreaix.copy_discarding_constraints(%3) : (tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>) -> tensor<4xf32>
    coreai.output %4 : tensor<4xf32>
  }
}
