"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260204>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<() -> (results !aicode.tensor_v1<[3, 2] : !aicode.float8E8M0FN_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = false] "f4CBf3+A">}> : () -> !aicode.tensor_v1<[2, 3] : !aicode.float8E8M0FN_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = false] "AwAAAAIAAAA=">}> : () -> !aicode.tensor_v1<[2] : !aicode.uint32_v1>
      %2 = "aicode.primitive.reshape_v2"(%0, %1) : (!aicode.tensor_v1<[2, 3] : !aicode.float8E8M0FN_v1>, !aicode.tensor_v1<[2] : !aicode.uint32_v1>) -> !aicode.tensor_v1<[3, 2] : !aicode.float8E8M0FN_v1>
      "aicode.dataflow.output_v1"(%2) : (!aicode.tensor_v1<[3, 2] : !aicode.float8E8M0FN_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
