"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251023>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"h">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.handle_v1<!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>>, !aicode.tensor_v1<[2, 3] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[2, 3] : !aicode.float32_v1>, !aicode.token_v1)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"t">]>]>]>}> ({
    ^bb0(%arg0: !aicode.handle_v1<!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>>, %arg1: !aicode.tensor_v1<[2, 3] : !aicode.float32_v1>):
      %0 = "aicode.dataflow.create_token_v1"() : () -> !aicode.token_v1
      %1 = "aicode.dataflow.write_handle_v1"(%arg0, %arg1, %0) : (!aicode.handle_v1<!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>>, !aicode.tensor_v1<[2, 3] : !aicode.float32_v1>, !aicode.token_v1) -> !aicode.token_v1
      %2 = "aicode.dataflow.join_token_v1"(%1, %1) : (!aicode.token_v1, !aicode.token_v1) -> !aicode.token_v1
      %3:2 = "aicode.dataflow.read_handle_v1"(%arg0, %2) : (!aicode.handle_v1<!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>>, !aicode.token_v1) -> (!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>, !aicode.token_v1)
      "aicode.dataflow.output_v1"(%3#0, %3#1) : (!aicode.tensor_v1<[2, 3] : !aicode.float32_v1>, !aicode.token_v1) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
