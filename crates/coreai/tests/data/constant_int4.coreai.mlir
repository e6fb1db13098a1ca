module {
  coreai.graph @main() -> (tensor<3x2xsi4> {coreai.name = "y"}) {
    %0 = coreai.constant dense_resource<resource_14638667097680069007> : tensor<2x3xsi4>
    %1 = coreai.constant dense<[3, 2]> : tensor<2xui32>
    %2 = coreai.reshape %0, %1 : (tensor<2x3xsi4>, tensor<2xui32>) -> tensor<3x2xsi4>
    coreai.output %2 : tensor<3x2xsi4>
  }
}

