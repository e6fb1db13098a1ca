"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251023>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"n">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[3] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<!aicode.sint32_v1>, %arg1: !aicode.tensor_v1<[3] : !aicode.float32_v1>):
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AQAAAA==">}> : () -> !aicode.tensor_v1<!aicode.sint32_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AAAAAA==">}> : () -> !aicode.tensor_v1<!aicode.sint32_v1>
      %2:2 = "aicode.controlflow.while_v1"(%1, %arg1) ({
      ^bb0(%arg4: !aicode.tensor_v1<!aicode.sint32_v1>, %arg5: !aicode.tensor_v1<[3] : !aicode.float32_v1>):
        %5 = "aicode.primitive.not_equal_v1"(%arg4, %arg0) : (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<!aicode.sint32_v1>) -> !aicode.tensor_v1<!aicode.bool_v1>
        "aicode.controlflow.condition_v1"(%5, %arg4, %arg5) : (!aicode.tensor_v1<!aicode.bool_v1>, !aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
      }, {
      ^bb0(%arg2: !aicode.tensor_v1<!aicode.sint32_v1>, %arg3: !aicode.tensor_v1<[3] : !aicode.float32_v1>):
        %3 = "aicode.primitive.add_v1"(%arg2, %0) : (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<!aicode.sint32_v1>) -> !aicode.tensor_v1<!aicode.sint32_v1>
        %4 = "aicode.primitive.add_v1"(%arg3, %arg3) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> !aicode.tensor_v1<[3] : !aicode.float32_v1>
        "aicode.dataflow.yield_v1"(%3, %4) : (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
      }) : (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> (!aicode.tensor_v1<!aicode.sint32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>)
      "aicode.dataflow.output_v1"(%2#1) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
