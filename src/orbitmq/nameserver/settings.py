"""The name server's settings by the keys of Apache's: NamesrvConfig and NettyServerConfig.

A name server beside a broker has no file of its own: what is changed while it runs is kept in the
broker's store, as is what is put into it (kvConfig.json).
"""

from __future__ import annotations

from typing import Final

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.settings import Directory, Flag, Key, Number, Section, SettingsTable

_FLAG: Final = Flag()

UNUSED: Final = (
    Section(
        "one loop carries out all requests: there are no thread pools, and no queues before them",
        """
        clientRequestThreadPoolNums=8 defaultThreadPoolNums=16
        clientRequestThreadPoolQueueCapacity=50000 defaultThreadPoolQueueCapacity=10000
        unRegisterBrokerQueueCapacity=3000
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
        shutdownWaitTimeSeconds=30 useEpollNativeSelector=false
        """,
    ),
    Section(
        "it is of the machine Apache's name server stands on",
        """
        rocketmqHome= productEnvName=center configBlackList=configBlackList;configStorePath
        """,
    ),
    Section(
        "it takes requests once it listens",
        "needWaitForService=false waitSecondsForService=45",
    ),
)

REFUSED: Final = (
    Section("there are no controllers", "enableControllerInNamesrv=false"),
    Section("there are no test clusters", "clusterTest=false"),
    Section(
        "brokers have no slaves that act as masters",
        "supportActingMaster=false notifyMinBrokerIdChanged=false",
    ),
)

KEYS: Final[SettingsTable[NameServerConfig]] = SettingsTable(
    Key("kvConfigPath", "kv_config_path", Directory()),
    Key("configStorePath", "config_store_path", Directory()),
    Key("orderMessageEnable", "order_message_enable", _FLAG, live=True),
    Key("returnOrderTopicConfigToBroker", "return_order_topic_config_to_broker", _FLAG, live=True),
    Key(
        "deleteTopicWithBrokerRegistration",
        "delete_topic_with_broker_registration",
        _FLAG,
        live=True,
    ),
    Key("enableAllTopicList", "enable_all_topic_list", _FLAG, live=True),
    Key("enableTopicList", "enable_topic_list", _FLAG, live=True),
    Key("scanNotActiveBrokerInterval", "scan_interval_ms", Number(), live=True),
    Key("serverChannelMaxIdleTimeSeconds", "connection_idle_ms", Number(1000), live=True),
    unused=UNUSED,
    refused=REFUSED,
)
"""Every key that sets something; address and port are those of the broker's settings."""
