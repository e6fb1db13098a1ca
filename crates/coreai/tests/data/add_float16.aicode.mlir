"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20250707>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>, !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>) -> (results !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>, %arg1: !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>):
      %0 = "aicode.primitive.add_v1"(%arg0, %arg1) : (!aicode.tensor_v1<[2, 5] : !aicode.float16_v1>, !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>) -> !aicode.tensor_v1<[2, 5] : !aicode.float16_v1>
      "aicode.dataflow.output_v1"(%0) : (!aicode.tensor_v1<[2, 5] : !aicode.float16_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
