module {
  coreai.graph @main(%arg0: tensor<?x?xf32> {coreai.name = "x"}) -> (tensor<?xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<-1> : tensor<1xsi32>
    %1 = coreai.reshape %arg0, %0 : (tensor<?x?xf32>, tensor<1xsi32>) -> tensor<?xf32>
    coreai.output %1 : tensor<?xf32>
  }
}
