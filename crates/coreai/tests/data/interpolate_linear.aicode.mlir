"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260127>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[1, 2, 3, 3] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[1, 2, 6, 6] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[1, 2, 3, 3] : !aicode.float32_v1>):
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = false] "AQAAAAIAAAAGAAAABgAAAA==">}> : () -> !aicode.tensor_v1<[4] : !aicode.sint32_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = false] "AACAPwAAgD8AAABAAAAAQA==">}> : () -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
      %2 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AAAAAA==">}> : () -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
      %3 = "aicode.primitive.interpolate_v1"(%arg0, %0, %1, %2) <{interpolation_mode = #aicode.interpolation_mode_v1<linear>}> : (!aicode.tensor_v1<[1, 2, 3, 3] : !aicode.float32_v1>, !aicode.tensor_v1<[4] : !aicode.sint32_v1>, !aicode.tensor_v1<[4] : !aicode.float32_v1>, !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[1, 2, 6, 6] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%3) : (!aicode.tensor_v1<[1, 2, 6, 6] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
