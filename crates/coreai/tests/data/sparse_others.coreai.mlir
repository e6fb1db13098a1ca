module {
  coreai.graph @main(%arg0: tensor<2x3xf32, #coreai.sparse_tensor_encoding<coo, numNonZero = 5, posWidth = 8, crdWidth = 16>> {coreai.name = "a"}, %arg1: tensor<2x3xf32, #coreai.sparse_tensor_encoding<csr, numNonZero = 4, posWidth = 16, crdWidth = 8>> {coreai.name = "b"}, %arg2: tensor<2x3xf32, #coreai.sparse_tensor_encoding<csc, numNonZero = 3, posWidth = 32, crdWidth = 64>> {coreai.name = "c"}, %arg3: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
    coreai.output %arg3 : tensor<2xf32>
  }
}
