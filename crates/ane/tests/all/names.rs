//! The published names of the private interface: each class and selector is bound, or
//! docs/ane-bindings.md says why not.

use ferrane_ane::bind::table;

/// Class, section of apple-runtime.md (or `dumps` for names that only published dumps have),
/// selectors.
const PUBLISHED: &[(&str, &str, &[&str])] = &[
    (
        "_ANEInMemoryModelDescriptor",
        "2, 12",
        &["modelWithMILText:weights:optionsPlist:", "initWithNetworkText:weights:optionsPlist:isMILModel:"],
    ),
    (
        "_ANEInMemoryModel",
        "2, 5",
        &[
            "inMemoryModelWithDescriptor:",
            "hexStringIdentifier",
            "compileWithQoS:options:error:",
            "loadWithQoS:options:error:",
            "evaluateWithQoS:options:request:error:",
            "unloadWithQoS:error:",
        ],
    ),
    (
        "_ANEInMemoryModel",
        "2, 8, 11, 12",
        &[
            "state",
            "programHandle",
            "intermediateBufferHandle",
            "queueDepth",
            "program",
            "perfStatsMask",
            "isMILModel",
            "modelAttributes",
            "sharedConnection",
            "modelURL",
            "compilerOptionsFileName",
            "model",
            "string_id",
            "descriptor",
            "compiledModelExists",
            "initWithDesctiptor:",
            "purgeCompiledModel",
            "saveModelFiles",
            "mapIOSurfacesWithRequest:cacheInference:error:",
        ],
    ),
    (
        "_ANEModel",
        "2, 8, 12",
        &[
            "modelAtURL:key:",
            "state",
            "programHandle",
            "intermediateBufferHandle",
            "queueDepth",
            "program",
            "perfStatsMask",
            "modelAttributes",
            "getUUID",
        ],
    ),
    (
        "_ANERequest",
        "2",
        &["requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:"],
    ),
    ("_ANEIOSurfaceObject", "2", &["objectWithIOSurface:"]),
    ("_ANEDeviceInfo", "2", &["aneSubType"]),
    ("_ANEDeviceInfo", "dumps", &["aneArchitectureType", "numANEs", "numANECores"]),
    ("_ANEProgramForEvaluation", "5", &["processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:"]),
    (
        "_ANEProgramForEvaluation",
        "dumps",
        &["processInputBuffers:model:options:error:", "processOutputSet:model:options:error:"],
    ),
    (
        "_ANEClient",
        "5",
        &[
            "sharedConnection",
            "initWithRestrictedAccessAllowed:",
            "evaluateWithModel:options:request:qos:error:",
            "doEvaluateDirectWithModel:options:request:qos:error:",
            "evaluateRealTimeWithModel:options:request:error:",
            "beginRealTimeTask",
            "endRealTimeTask",
        ],
    ),
    (
        "_ANEClient",
        "8, 12",
        &[
            "compileModel:options:qos:error:",
            "loadModel:options:qos:error:",
            "unloadModel:options:qos:error:",
            "doLoadModel:options:qos:error:",
            "doUnloadModel:options:qos:error:",
            "loadModelNewInstance:options:modelInstParams:qos:error:",
            "doLoadModelNewInstance:options:modelInstParams:qos:error:",
            "loadRealTimeModel:options:qos:error:",
            "unloadRealTimeModel:options:qos:error:",
            "prepareChainingWithModel:options:chainingReq:qos:error:",
            "doPrepareChainingWithModel:options:chainingReq:qos:error:",
            "buffersReadyWithModel:inputBuffers:options:qos:error:",
            "doBuffersReadyWithModel:inputBuffers:options:qos:error:",
            "enqueueSetsWithModel:outputSet:options:qos:error:",
            "doEnqueueSetsWithModel:outputSet:options:qos:error:",
            "sessionHintWithModel:hint:options:report:error:",
            "reportEvaluateFailure:failureReason:qIdx:",
            "compiledModelExistsFor:",
            "compiledModelExistsMatchingHash:",
            "purgeCompiledModel:",
            "purgeCompiledModelMatchingHash:",
            "connections",
            "connectionsUsedForLoadingModels",
            "connectionForLoadingModel:options:",
            "echo:",
        ],
    ),
    ("_ANEVirtualClient", "dumps", &["sharedConnection"]),
    (
        "_ANEPerformanceStats",
        "6",
        &[
            "hwExecutionTime",
            "perfCounterData",
            "pStatsRawData",
            "statsWithHardwareExecutionNS:",
            "statsWithRequestPerformanceBuffer:statsBufferSize:",
            "statsWithReconstructed:hardwareExecutionNS:aneStatsRawData:",
            "driverMaskForANEFMask:",
        ],
    ),
    ("_ANEPerformanceStatsIOSurface", "6", &["objectWithIOSurface:statType:", "statType"]),
    ("_ANEWeight", "6", &["weightWithSymbolAndURL:weightURL:"]),
    ("_ANEProcedureData", "dumps", &["procedureDataWithSymbol:weightArray:"]),
    ("_ANEModelInstanceParameters", "dumps", &["withProcedureData:procedureArray:"]),
    ("_ANESharedSignalEvent", "6", &["signalEventWithValue:symbolIndex:eventType:sharedEvent:"]),
    ("_ANESharedWaitEvent", "6", &["waitEventWithValue:sharedEvent:"]),
    (
        "_ANERequest",
        "dumps",
        &[
            "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:sharedEvents:",
            "setCompletionHandler:",
        ],
    ),
    ("IOSurfaceSharedEvent", "6", &["init", "signaledValue", "setSignaledValue:", "waitUntilSignaledValue:timeoutMS:"]),
    ("_ANESharedEvents", "6", &["sharedEventsWithSignalEvents:waitEvents:"]),
    ("_ANEBuffer", "8", &["bufferWithIOSurfaceObject:symbolIndex:source:"]),
    ("_ANEIOSurfaceOutputSets", "8", &["objectWithstatsSurRef:outputBuffer:"]),
    (
        "_ANEChainingRequest",
        "8",
        &[
            "chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:transactionHandle:fwEnqueueDelay:memoryPoolId:",
            "validate",
        ],
    ),
    (
        "_ANEInputBuffersReady",
        "8",
        &["inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:"],
    ),
    ("_ANEOutputSetEnqueue", "8", &["outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:"]),
    (
        "_ANEProgramIOSurfacesMapper",
        "8",
        &["mapperWithProgramHandle:", "mapIOSurfacesWithModel:request:cacheInference:error:"],
    ),
    (
        "_ANEDeviceController",
        "12",
        &["controllerWithProgramHandle:", "device", "start", "stop", "programHandle", "isPrivileged"],
    ),
    (
        "_ANEQoSMapper",
        "dumps",
        &[
            "aneDefaultTaskQoS",
            "aneRealTimeTaskQoS",
            "queueIndexForQoS:",
            "programPriorityForQoS:",
            "realTimeQueueIndex",
        ],
    ),
    ("MLProgramE5Container", "9", &["initWithModelAssetPath:configuration:"]),
    (
        "MLE5ProgramLibraryOnDeviceAOTCompilationImpl",
        "9",
        &["initWithMILTextAtURL:container:configuration:", "createProgramLibraryHandleWithRespecialization:error:"],
    ),
    ("MLE5ProgramLibrary", "9", &["initWithImpl:container:configuration:"]),
    (
        "MLE5Engine",
        "9",
        &[
            "initWithProgramLibrary:modelDescription:configuration:functionName:classProbabilitiesFeatureName:optionalInputDefaultValues:compilerVersionInfo:",
            "prepareWithConcurrencyHint:error:",
            "predictionFromFeatures:options:error:",
            "programLibrary",
            "operationPool",
            "streamPool",
        ],
    ),
    ("MLE5ExecutionStreamPool", "9", &["takeOut", "putBack:"]),
    (
        "MLModelConfiguration",
        "12",
        &[
            "experimentalMLE5EngineUsage",
            "e5rtComputeDeviceTypeMask",
            "e5rtCustomANECompilerOptions",
            "neuralEngineCompilerOptions",
            "e5rtDynamicCallableFunctions",
        ],
    ),
];

/// Names in the document that are not methods of the engine's framework.
const OTHERS: &[&str] = &[
    "H11ANEIn",
    "ANEMemoryMappingParamsStruct",
    "MLDelegateModel",
    "e5rt_program_library_create",
    "e5rt_execution_stream_create",
    "e5rt_async_event_create",
    "e5rt_async_event_signal",
];

#[test]
fn what_is_published_is_bound_or_has_a_reason() {
    let bound: Vec<(String, String)> = table()
        .into_iter()
        .map(|m| (m.class.to_string_lossy().into_owned(), m.selector.to_string_lossy().into_owned()))
        .collect();
    let reasons: String = crate::docs::NOT_BOUND.iter().map(|(what, _)| format!("{what} ")).collect();
    let mut names = 0;
    for (class, section, selectors) in PUBLISHED {
        for selector in *selectors {
            names += 1;
            let is_bound = bound.iter().any(|(c, s)| c == class && s == selector);
            let has_reason = reasons.contains(&format!("[{class} {selector}]"));
            assert!(is_bound || has_reason, "{class} {selector} (section {section})");
            assert!(!(is_bound && has_reason), "{class} {selector} is bound after all");
        }
    }
    assert!(names > 100, "{names}");
    OTHERS.iter().for_each(|name| assert!(reasons.contains(name), "{name}"));
}
