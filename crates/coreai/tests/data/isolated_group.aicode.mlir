"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260204>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[4] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
      %0 = "aicode.dataflow.isolated_group_v1"(%arg0) <{arg_attrs = #aicode.serialization.array<>, delegate_id = #aicode.serialization.string<"Interpreter">, res_attrs = #aicode.serialization.array<>}> ({
      ^bb0(%arg1: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
        %1 = "aicode.relu_v1"(%arg1) ({
        ^bb0(%arg2: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
          %2 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AAAAAA==">}> : () -> !aicode.tensor_v1<!aicode.float32_v1>
          %3 = "aicode.broadcasting_maximum_v1"(%arg2, %2) ({
          ^bb0(%arg3: !aicode.tensor_v1<[4] : !aicode.float32_v1>, %arg4: !aicode.tensor_v1<!aicode.float32_v1>):
            %4 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AQAAAA==">}> : () -> !aicode.tensor_v1<[1] : !aicode.sint32_v1>
            %5 = "aicode.primitive.reshape_v2"(%arg4, %4) : (!aicode.tensor_v1<!aicode.float32_v1>, !aicode.tensor_v1<[1] : !aicode.sint32_v1>) -> !aicode.tensor_v1<[1] : !aicode.float32_v1>
            %6 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "BAAAAA==">}> : () -> !aicode.tensor_v1<[1] : !aicode.uint32_v1>
            %7 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_elements<[splat = true] "AAAAAA==">}> : () -> !aicode.tensor_v1<[1] : !aicode.sint32_v1>
            %8 = "aicode.primitive.broadcast_in_dims_v1"(%5, %6, %7) : (!aicode.tensor_v1<[1] : !aicode.float32_v1>, !aicode.tensor_v1<[1] : !aicode.uint32_v1>, !aicode.tensor_v1<[1] : !aicode.sint32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
            %9 = "aicode.primitive.maximum_v1"(%arg3, %8) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>, !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
            "aicode.dataflow.yield_v1"(%9) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
          }) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>, !aicode.tensor_v1<!aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
          "aicode.dataflow.yield_v1"(%3) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
        }) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
        "aicode.dataflow.yield_v1"(%1) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
      }) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%0) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
