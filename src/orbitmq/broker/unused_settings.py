"""Keys of Apache's broker.conf that set nothing here, by section, with Apache's defaults.

Those of UNUSED are taken and told in the log once: they tune what this broker does not have, and
nothing is promised by them. Those of REFUSED are taken with the values given here alone: another
one would promise what this broker does not do. Keys are the fields of BrokerConfig, BrokerIdentity,
MessageStoreConfig, NettyServerConfig, NettyClientConfig and AuthConfig, of 4.9.7 and 5.x.
"""

from __future__ import annotations

from typing import Final

from orbitmq.settings import Section

UNUSED: Final = (
    Section(
        "one loop carries out all requests: there are no thread pools, and no queues before them",
        """
        sendMessageThreadPoolNums=4 putMessageFutureThreadPoolNums=4 pullMessageThreadPoolNums=32
        litePullMessageThreadPoolNums=32 ackMessageThreadPoolNums=16
        processReplyMessageThreadPoolNums=32 queryMessageThreadPoolNums=16
        adminBrokerThreadPoolNums=16 clientManageThreadPoolNums=32 consumerManageThreadPoolNums=32
        loadBalanceProcessorThreadPoolNums=32 heartbeatThreadPoolNums=8 recoverThreadPoolNums=32
        endTransactionThreadPoolNums=24 sendThreadPoolQueueCapacity=10000
        putThreadPoolQueueCapacity=10000 pullThreadPoolQueueCapacity=100000
        litePullThreadPoolQueueCapacity=100000 ackThreadPoolQueueCapacity=100000
        replyThreadPoolQueueCapacity=10000 queryThreadPoolQueueCapacity=20000
        clientManagerThreadPoolQueueCapacity=1000000 consumerManagerThreadPoolQueueCapacity=1000000
        heartbeatThreadPoolQueueCapacity=50000 endTransactionPoolQueueCapacity=100000
        adminBrokerThreadPoolQueueCapacity=10000 loadBalanceThreadPoolQueueCapacity=100000
        waitTimeMillsInSendQueue=200 waitTimeMillsInPullQueue=5000 waitTimeMillsInLitePullQueue=5000
        waitTimeMillsInHeartbeatQueue=31000 waitTimeMillsInTransactionQueue=3000
        waitTimeMillsInAckQueue=3000 waitTimeMillsInAdminBrokerQueue=5000 recoverConcurrently=false
        asyncSendEnable=true maxAsyncPutMessageRequests=5000 topicQueueLockNum=32
        useReentrantLockWhenPutMessage=true spinLockCollisionRetreatOptimalDegree=1000
        useABSLock=false debugLockEnable=false highSpeedMode=false
        """,
    ),
    Section(
        "Python's sockets, not Netty, carry the connections",
        """
        serverWorkerThreads=8 serverCallbackExecutorThreads=0 serverSelectorThreads=3
        serverOnewaySemaphoreValue=256 serverAsyncSemaphoreValue=64 serverSocketSndBufSize=0
        serverSocketRcvBufSize=0 writeBufferHighWaterMark=0 writeBufferLowWaterMark=0
        serverSocketBacklog=1024 serverNettyWorkerGroupEnable=true
        serverPooledByteBufAllocatorEnable=true enableShutdownGracefully=false
        shutdownWaitTimeSeconds=30 useEpollNativeSelector=false transferMsgByHeap=true
        clientWorkerThreads=4 clientCallbackExecutorThreads=8 clientOnewaySemaphoreValue=65535
        clientAsyncSemaphoreValue=65535 connectTimeoutMillis=3000 channelNotActiveInterval=60000
        isScanAvailableNameSrv=true clientChannelMaxIdleTimeSeconds=120 clientSocketSndBufSize=0
        clientSocketRcvBufSize=0 clientPooledByteBufAllocatorEnable=false
        clientCloseSocketIfTimeout=true useTLS=false socksProxyConfig={}
        disableCallbackExecutor=false disableNettyWorkerGroup=false
        maxReconnectIntervalTimeSeconds=60 enableReconnectForGoAway=true
        enableFastChannelEventProcess=false printChannelGroups=false printChannelGroupsMinNum=5
        """,
    ),
    Section(
        "a broker here has no slaves, and follows no master",
        """
        brokerIP2= haListenPort=10912 haSendHeartbeatInterval=5000 haHousekeepingInterval=20000
        haTransferBatchSize=32768 haMasterAddress= haMaxGapNotInSync=268435456
        haSlaveFallbehindMax=268435456 slaveTimeout=3000 slaveReadEnable=false
        offsetCheckInSlave=false haFlowControlEnable=false maxHaTransferByteInSecond=104857600
        haMaxTimeSlaveNotCatchup=15000 syncMasterFlushOffsetWhenStartup=false
        maxChecksumRange=1073741824 maxSlaveResendLength=268435456 syncFromLastFile=false
        asyncLearner=false enableAutoInSyncReplicas=false allAckInSyncStateSet=false
        sendHeartbeatTimeoutMillis=1000 brokerHeartbeatInterval=1000
        brokerNotActiveTimeoutMillis=10000 syncBrokerMemberGroupPeriod=1000 forwardTimeout=3000
        skipPreOnline=false compatibleWithOldNameSrv=true lockInStrictMode=false
        replicasPerDiskPartition=1 logicalDiskSpaceCleanForciblyThreshold=0.8
        """,
    ),
    Section(
        "there are no controllers",
        """
        controllerAddr= fetchControllerAddrByDnsLookup=false syncBrokerMetadataPeriod=5000
        checkSyncStateSetPeriod=5000 syncControllerMetadataPeriod=10000
        controllerHeartBeatTimeoutMills=10000 brokerElectionPriority=2147483647
        storePathEpochFile= storePathBrokerIdentity=
        """,
    ),
    Section(
        "there is no DLedger",
        """
        storePathDLedgerCommitLog= dLegerGroup= dLegerPeers= dLegerSelfId= preferredLeaderId=
        """,
    ),
    Section(
        "there is no RocksDB",
        """
        cleanRocksDBDirtyCQIntervalMin=60 statRocksDBCQIntervalSec=10
        memTableFlushIntervalMs=3600000 realTimePersistRocksDBConfig=true enableRocksDBLog=false
        combineCQLoadingCQTypes=default;defaultRocksDB combineCQPreferCQType=default
        combineAssignOffsetCQType=default combineCQEnableCheckSelf=false
        combineCQMaxExtraSearchCommitLogFiles=3 bottomMostCompressionTypeForConsumeQueueStore=zstd
        rocksdbCompressionType=lz4 rocksdbFlushWalFrequency=1024
        rocksdbWalFileRollingThreshold=1073741824
        """,
    ),
    Section(
        "topics are not compacted",
        """
        compactionMappedFileSize=104857600 compactionCqMappedFileSize=10485760
        compactionScheduleInternal=900000 maxOffsetMapSize=104857600 compactionThreadNum=6
        enableCompaction=true
        """,
    ),
    Section(
        "there is no pop consumption",
        """
        popPollingSize=1024 popPollingMapSize=100000 popPollingMapExpireTimeSeconds=600
        maxPopPollingSize=100000 reviveQueueNum=8 reviveInterval=1000 reviveMaxSlow=3
        reviveScanTime=10000 enableSkipLongAwaitingAck=false reviveAckWaitMs=180000
        enablePopLog=false enablePopBufferMerge=false popCkStayBufferTime=10000
        popCkStayBufferTimeOut=3000 popCkMaxBufferSize=200000 popCkOffsetMaxQueueSize=20000
        enablePopBatchAck=false popLongPollingForceNotifyInterval=800
        enableNotifyBeforePopCalculateLag=true enableNotifyAfterPopOrderLockRelease=true
        initPopOffsetByCheckMsgInMem=true retrieveMessageFromPopRetryTopicV1=true
        enableRetryTopicV2=false popFromRetryProbability=20 popConsumerFSServiceInit=true
        popConsumerKVServiceLog=false popConsumerKVServiceInit=false
        popConsumerKVServiceEnable=false popReviveMaxReturnSizePerRead=16384
        popReviveMaxAttemptTimes=16 popInflightMessageThreshold=10000
        enablePopMessageThreshold=false popResponseReturnActualRetryTopic=false
        skipWhenCKRePutReachMaxTimes=false appendAckAsync=false appendCkAsync=false
        serverLoadBalancerEnable=true defaultPopShareQueueNum=-1
        loadBalancePollNameServerInterval=30000 enablePopMetrics=true
        """,
    ),
    Section(
        "there are no batch consume queues, light queues or queue extensions",
        """
        mapperFileSizeBatchConsumeQueue=13800000 mappedFileSizeConsumeQueueExt=50331648
        bitMapLengthConsumeQueueExt=64 searchBcqByCacheEnable=true maxLmqConsumeQueueNum=20000
        enableLmqStats=false enableCalcFilterBitMap=false expectConsumerNumUseFilter=32
        maxErrorRateOfBloomFilter=20 filterDataCleanTimeSpan=86400000 maxFilterMessageSize=16000
        filterServerNums=0
        """,
    ),
    Section(
        "the store writes and reads its files in its own way",
        """
        commitIntervalCommitLog=200 maxRecoveryCommitlogFiles=30 flushCommitLogTimed=true
        flushCommitLogLeastPages=4 commitCommitLogLeastPages=4
        flushLeastPagesWhenWarmMapedFile=4096 flushConsumeQueueLeastPages=2
        flushCommitLogThoroughInterval=10000 commitCommitLogThoroughInterval=200
        flushConsumeQueueThoroughInterval=60000 accessMessageInMemoryMaxRatio=40
        maxTransferBytesOnMessageInDisk=65536 maxTransferCountOnMessageInDisk=8
        checkCRCOnRecover=true warmMapedFileEnable=false transientStorePoolSize=5
        fastFailIfNoBufferInStorePool=false writeWithoutMmap=false syncFlushTimeout=5000
        putMessageTimeout=8000 osPageCacheBusyTimeOutMills=1000 diskFallRecorded=true
        dispatchCqThreads=10 dispatchCqCacheNum=4096 enableAsyncReput=true
        recheckReputOffsetFromCq=false maxTopicLength=127 autoMessageVersionOnTopicLen=true
        enableRunningFlagsInFlush=false forceVerifyPropCRC=false travelCqFileNumWhenGetMessage=1
        correctLogicMinOffsetSleepInterval=1 correctLogicMinOffsetForceInterval=300000
        mappedFileSwapEnable=true commitLogForceSwapMapInterval=43200000
        commitLogSwapMapInterval=3600000 commitLogSwapMapReserveFileNum=100
        logicQueueForceSwapMapInterval=43200000 logicQueueSwapMapInterval=3600000
        cleanSwapedMapInterval=300000 logicQueueSwapMapReserveFileNum=20
        dispatchFromSenderThread=false wakeCommitWhenPutMessage=true wakeFlushWhenPutMessage=false
        pullBatchMaxMessageCount=160 maxConsumeQueueScan=20000 sampleCountThreshold=5000
        sampleSteps=32 coldDataScanEnable=false dataReadAheadEnable=true
        timerColdDataCheckIntervalMs=60000 accessMessageInMemoryHotRatio=26
        enableBuildConsumeQueueConcurrently=false batchDispatchRequestThreadPoolNums=16
        putConsumeQueueDataByFileChannel=true enableAcceleratedRecovery=false
        enableLogConsumeQueueRepeatedlyBuildWhenRecover=false estimateAccumulation=true
        usePIDColdCtrStrategy=true cgColdReadThreshold=3145728 globalColdReadThreshold=104857600
        enableScheduleMessageStats=true enableScheduleAsyncDeliver=false
        scheduleAsyncDeliverMaxPendingLimit=2000 scheduleAsyncDeliverMaxResendNum2Blocked=3
        maxDelayTime=40 isEnableBatchPush=false enableBatchPush=false
        """,
    ),
    Section(
        "it is of Apache's accounts, metrics or log files",
        """
        commercialEnable=true commercialTimerCount=1 commercialTransCount=1 commercialBigCount=1
        commercialBaseCount=1 commercialSizePerMsg=4096 accountStatsEnable=true
        accountStatsPrintZeroValues=true enableDetailStat=true autoDeleteUnusedStats=true
        isolateLogEnable=false metricsOtelCardinalityLimit=50000 metricsGrpcExporterTarget=
        metricsGrpcExporterHeader= metricGrpcExporterTimeOutInMills=3000
        metricGrpcExporterIntervalInMills=60000 metricLoggingExporterIntervalInMills=10000
        metricsPromExporterPort=5557 metricsPromExporterHost= metricsLabel= metricsInDelta=false
        enableRemotingMetrics=true enableMessageStoreMetrics=true enableConnectionMetrics=true
        enableTransactionMetrics=true enableStatsMetrics=true enableRequestMetrics=true
        enableLagAndDlqMetrics=true transactionMetricFlushInterval=10000
        """,
    ),
    Section(
        "the broker tells its name servers all that changes, as it changes",
        """
        fetchNameSrvAddrByDnsLookup=false registerBrokerTimeoutMills=24000 compressedRegister=false
        forceRegister=true registerNameServerPeriod=30000 updateNameServerAddrPeriod=120000
        fetchNamesrvAddrInterval=10000
        enableSplitRegistration=false splitRegistrationSize=800
        cleanOfflineBrokerInterval=30000
        """,
    ),
    Section(
        "the tables are saved in their own way",
        """
        flushConsumerOffsetHistoryInterval=60000 consumerOffsetUpdateVersionStep=500
        delayOffsetUpdateVersionStep=200 configManagerVersion=v1 enableCleanExpiredOffset=false
        """,
    ),
    Section(
        "it is of the machine Apache's broker stands on",
        """
        rocketmqHome= brokerConfigPath= messageStorePlugIn= startAcceptSendRequestTimeStamp=0
        configBlackList=configBlackList;brokerConfigPath
        """,
    ),
    Section(
        "pulls wait for messages, and consumers are told of changes at once",
        """
        shortPollingTimeMills=1000 realTimeNotifyConsumerChange=true
        consumerFallbehindThreshold=17179869184
        """,
    ),
    Section(
        "consumers that broadcast keep their offsets themselves",
        """
        enableBroadcastOffsetStore=true broadcastOffsetExpireSecond=120
        broadcastOffsetExpireMaxSecond=300
        """,
    ),
    Section(
        "a file that is read from stays there until it is read",
        "destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000",
    ),
    Section(
        "signatures are not checked",
        """
        configName= clusterName= authConfigPath= authenticationProvider=
        authenticationMetadataProvider= authenticationStrategy= authenticationWhitelist=
        initAuthenticationUser= innerClientAuthenticationCredentials= authorizationProvider=
        authorizationMetadataProvider= authorizationStrategy= authorizationWhitelist=
        migrateAuthFromV1Enabled=false userCacheMaxNum=1000 userCacheExpiredSecond=600
        userCacheRefreshSecond=60 aclCacheMaxNum=1000 aclCacheExpiredSecond=600
        aclCacheRefreshSecond=60 statefulAuthenticationCacheMaxNum=10000
        statefulAuthenticationCacheExpiredSecond=60 statefulAuthorizationCacheMaxNum=10000
        statefulAuthorizationCacheExpiredSecond=60
        """,
    ),
    Section(
        "timers are delivered by the one loop, tried until they are, and counted as they come",
        """
        timerGetMessageThreadNum=3 timerPutMessageThreadNum=3 timerEnableDisruptor=false
        timerWarmEnable=false timerSkipUnknownError=false timerEnableRetryUntilSuccess=false
        timerEnableCheckMetrics=true timerCheckMetricsWhen=05 timerMetricSmallThreshold=1000000
        timerProgressLogIntervalMs=10000 disappearTimeAfterStart=-1
        """,
    ),
    Section(
        "the end of a transaction is written down with it, not later with others",
        "transactionOpMsgMaxSize=4096 transactionOpBatchInterval=3000",
    ),
    Section(
        "the index follows the log by itself, and is made again from it",
        "putMsgIndexHightWater=600000 messageIndexSafe=false",
    ),
    Section(
        "deleteFileBatchMax, a day for statistics and the last heartbeat of a group stand for it",
        "maxBatchDeleteFilesNum=50 maxStatsIdleTimeInMinutes=-1 subscriptionExpiredTimeout=600000",
    ),
)

REFUSED: Final = (
    Section("a broker here is a master without slaves", "brokerId=0 brokerRole=ASYNC_MASTER"),
    Section(
        "there is one copy of a message",
        """
        totalReplicas=1 inSyncReplicas=1 minInSyncReplicas=1 duplicationEnable=false
        enableSlaveActingMaster=false enableRemoteEscape=false
        """,
    ),
    Section("there are no controllers", "enableControllerMode=false"),
    Section("there is no DLedger", "enableDLegerCommitLog=false"),
    Section("there are no broker containers", "isBrokerContainer=false isInBrokerContainer=false"),
    Section(
        "the store is of files, RocksDB is out of its scope",
        "storeType=default rocksdbCQDoubleWriteEnable=false",
    ),
    Section(
        "signatures are not checked",
        """
        aclEnable=false authenticationEnabled=false authorizationEnabled=false""",
    ),
    Section(
        "there is no pop consumption", "defaultMessageRequestMode=PULL useStaticSubscription=false"
    ),
    Section(
        "there are no light queues or queue extensions",
        "enableLmq=false enableMultiDispatch=false enableConsumeQueueExt=false",
    ),
    Section(
        "records are as 4.9 and 5.x write them by default",
        "enabledAppendPropCRC=false readUnCommitted=false",
    ),
    Section("messages are written to the page cache at once", "transientStorePoolEnable=false"),
    Section(
        "everything stands under storePathRootDir",
        "storePathCommitLog= readOnlyCommitLogStorePaths=",
    ),
    Section(
        "a consumer may pull, waits, and is told of changes in its group",
        """
        longPollingEnable=true litePullMessageEnable=true
        notifyConsumerIdsChangedEnable=true disableConsumeIfConsumerReadSlowly=false
        """,
    ),
    Section(
        "all clients are registered, and groups of any name are made",
        "enableRegisterProducer=true enableCreateSysGroup=true",
    ),
    Section(
        "timers are taken in and delivered while timerWheelEnable is on, apart from delay levels",
        "timerStopEnqueue=false timerStopDequeue=false timerInterceptDelayLevel=false",
    ),
    Section(
        "a message can be recalled whatever the broker's permission",
        "allowRecallWhenBrokerNotWriteable=true",
    ),
    Section("no metrics are exported", "metricsExporterType=DISABLE"),
    Section("name servers are given by namesrvAddr", "fetchNamesrvAddrByAddressServer=false"),
    Section(
        "slow readers are held back by their connections",
        """
        coldCtrStrategyEnable=false coldDataFlowControlEnable=false enableNetWorkFlowControl=false
        """,
    ),
)

FOLKLORE: Final = {
    "storePathConsumeQueue",
    "storePathIndex",
    "storeCheckpoint",
    "storePathAbort",
    "abortFile",
    "mapedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue",
    "checkTransactionMessageEnable",
    "sendMessageTimeout",
}
"""Keys that many files have and Apache's broker does not know: it takes no notice of them."""
