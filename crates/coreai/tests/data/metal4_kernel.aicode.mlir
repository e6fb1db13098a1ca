"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260409>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[4] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = false] "BAAAAAEAAAABAAAA">}> : () -> !aicode.tensor_v1<[3] : !aicode.uint32_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "BAAAAA==">}> : () -> !aicode.tensor_v1<[1] : !aicode.uint32_v1>
      %2 = "aicode.ax.copy_with_constraints_v1"(%arg0) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1, #aicode.ax.hw_constraints_v1<AXMTLBuffer, alignments: [1, 1], interleave: [1]>>
      %3 = "aicode.metal.metal4_kernel_v1"(%2, %0, %0, %1) <{kernel_name = #aicode.serialization.string<"k">, kernel_source = #aicode.serialization.string<"kernel void k() {}">}> : (!aicode.tensor_v1<[4] : !aicode.float32_v1, #aicode.ax.hw_constraints_v1<AXMTLBuffer, alignments: [1, 1], interleave: [1]>>, !aicode.tensor_v1<[3] : !aicode.uint32_v1>, !aicode.tensor_v1<[3] : !aicode.uint32_v1>, !aicode.tensor_v1<[1] : !aicode.uint32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1, #aicode.ax.hw_constraints_v1<AXMTLBuffer, alignments: [1, 1], interleave: [1]>>
      %4 = "aicode.ax.copy_discarding_constraints_v1"(%3) : (!aicode.tensor_v1<[4] : !aicode.float32_v1, #aicode.ax.hw_constraints_v1<AXMTLBuffer, alignments: [1, 1], interleave: [1]>>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%4) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
