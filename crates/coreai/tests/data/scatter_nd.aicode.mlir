"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251027>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"i">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"u">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[3, 6] : !aicode.float32_v1>, !aicode.tensor_v1<[2, 1] : !aicode.sint32_v1>, !aicode.tensor_v1<[2, 6] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[3, 6] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[3, 6] : !aicode.float32_v1>, %arg1: !aicode.tensor_v1<[2, 1] : !aicode.sint32_v1>, %arg2: !aicode.tensor_v1<[2, 6] : !aicode.float32_v1>):
      %0 = "aicode.primitive.scatter_nd_v1"(%arg0, %arg1, %arg2) ({
      ^bb0(%arg3: !aicode.tensor_v1<!aicode.float32_v1>, %arg4: !aicode.tensor_v1<!aicode.float32_v1>):
        "aicode.dataflow.yield_v1"(%arg4) : (!aicode.tensor_v1<!aicode.float32_v1>) -> ()
      }) : (!aicode.tensor_v1<[3, 6] : !aicode.float32_v1>, !aicode.tensor_v1<[2, 1] : !aicode.sint32_v1>, !aicode.tensor_v1<[2, 6] : !aicode.float32_v1>) -> !aicode.tensor_v1<[3, 6] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%0) : (!aicode.tensor_v1<[3, 6] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
