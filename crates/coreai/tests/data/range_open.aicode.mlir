"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251017>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<!aicode.sint32_v1>) -> (results !aicode.tensor_v1<[-9223372036854775808] : !aicode.sint32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<!aicode.sint32_v1>):
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "CQAAAA==">}> : () -> !aicode.tensor_v1<!aicode.sint32_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AgAAAA==">}> : () -> !aicode.tensor_v1<!aicode.sint32_v1>
      %2 = "aicode.primitive.range_v1"(%arg0, %0, %1) : (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<!aicode.sint32_v1>) -> !aicode.tensor_v1<[-9223372036854775808] : !aicode.sint32_v1>
      "aicode.dataflow.output_v1"(%2) : (!aicode.tensor_v1<[-9223372036854775808] : !aicode.sint32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
