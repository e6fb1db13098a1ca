module {
  coreai.graph @main(%arg0: !coreai.handle<tensor<2x3xf32>> {coreai.name = "h"}, %arg1: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x3xf32> {coreai.name = "y"}, !coreai.token {coreai.name = "t"}) {
    %0 = coreai.create_token : !coreai.token
    %1 = coreai.write_handle %arg0, %arg1, %0 : (<tensor<2x3xf32>>, tensor<2x3xf32>, !coreai.token) -> !coreai.token
    %2 = coreai.join_token %1, %1 : (!coreai.token, !coreai.token) -> !coreai.token
    %output, %out_token = coreai.read_handle %arg0, %2 : (<tensor<2x3xf32>>, !coreai.token) -> (tensor<2x3xf32>, !coreai.token)
    coreai.output %output, %out_token : tensor<2x3xf32>, !coreai.token
  }
}
