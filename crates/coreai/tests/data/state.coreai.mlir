module {
  coreai.graph @main(%arg0: !coreai.handle<tensor<2x3xf32>> {coreai.name = "h"}, %arg1: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x3xf32> {coreai.name = "y"}, !coreai.token {coreai.name = "t"}) {
    %0 = coreai.create_token : !coreai.token
    %output, %out_token = coreai.read_handle %arg0, %0 : (<tensor<2x3xf32>>, !coreai.token) -> (tensor<2x3xf32>, !coreai.token)
    %1 = coreai.add %output, %arg1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = coreai.write_handle %arg0, %1, %out_token : (<tensor<2x3xf32>>, tensor<2x3xf32>, !coreai.token) -> !coreai.token
    %output_0, %out_token_1 = coreai.read_handle %arg0, %2 : (<tensor<2x3xf32>>, !coreai.token) -> (tensor<2x3xf32>, !coreai.token)
    coreai.output %output_0, %out_token_1 : tensor<2x3xf32>, !coreai.token
  }
}
