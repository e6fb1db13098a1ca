module {
  coreai.graph @main() -> (tensor<3x2xf8E8M0FNU> {coreai.name = "y"}) {
    %0 = coreai.constant dense<[[1.000000e+00, 2.000000e+00, 4.000000e+00], [1.000000e+00, 1.000000e+00, 2.000000e+00]]> : tensor<2x3xf8E8M0FNU>
    %1 = coreai.constant dense<[3, 2]> : tensor<2xui32>
    %2 = coreai.reshape %0, %1 : (tensor<2x3xf8E8M0FNU>, tensor<2xui32>) -> tensor<3x2xf8E8M0FNU>
    coreai.output %2 : tensor<3x2xf8E8M0FNU>
  }
}
