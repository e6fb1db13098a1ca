"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251023>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"c">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"d">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<!aicode.bool_v1>, !aicode.tensor_v1<!aicode.bool_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>, #aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y1">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<!aicode.bool_v1>, %arg1: !aicode.tensor_v1<!aicode.bool_v1>, %arg2: !aicode.tensor_v1<[3] : !aicode.float32_v1>):
      %0:2 = "aicode.controlflow.if_v1"(%arg0) ({
        %2 = "aicode.controlflow.if_v1"(%arg1) ({
          %4 = "aicode.primitive.exp_v1"(%arg2) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> !aicode.tensor_v1<[3] : !aicode.float32_v1>
          "aicode.dataflow.yield_v1"(%4) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
        }, {
          %3 = "aicode.primitive.sin_v1"(%arg2) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> !aicode.tensor_v1<[3] : !aicode.float32_v1>
          "aicode.dataflow.yield_v1"(%3) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
        }) : (!aicode.tensor_v1<!aicode.bool_v1>) -> !aicode.tensor_v1<[3] : !aicode.float32_v1>
        "aicode.dataflow.yield_v1"(%2, %arg2) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
      }, {
        %1 = "aicode.primitive.cos_v1"(%arg2) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>) -> !aicode.tensor_v1<[3] : !aicode.float32_v1>
        "aicode.dataflow.yield_v1"(%arg2, %1) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
      }) : (!aicode.tensor_v1<!aicode.bool_v1>) -> (!aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>)
      "aicode.dataflow.output_v1"(%0#0, %0#1) : (!aicode.tensor_v1<[3] : !aicode.float32_v1>, !aicode.tensor_v1<[3] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
