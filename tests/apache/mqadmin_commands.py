"""Every command of Apache's mqadmin: those that work on our broker, and those that cannot.

Three tables, which together are all commands of 4.9.7 and 5.5.0; docs/from-apache.md says the same
of each. Arguments have names of a scenario in braces (mqadmin_scenario.py); what an output must
hold are regular expressions over its text as ``Scenario.plain`` gives it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OLD: Final = "4.9.7"
NEW: Final = "5.5.0"


class Works(NamedTuple):
    """A command as it is run.

    With nothing that it must ``hold`` its output is that on Apache's broker, word for word
    (mqadmin_golden.py). ``only`` is the one version that has it so. A command with ``until`` goes
    on until it has printed this.
    """

    command: str
    arguments: str = ""
    holds: tuple[str, ...] = ()
    only: str | None = None
    until: str | None = None

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.command} {self.arguments}".strip()


class Refused(NamedTuple):
    """A command about what OrbitMQ has not; the reason stands in what it prints."""

    command: str
    arguments: str
    reason: str
    only: str = NEW


# They run in this order: what looks at the scenario before what changes it.
WORKS: Final = (
    # Name servers
    Works("clusterList", "", ("DefaultCluster broker-a 0 {broker} ",)),
    Works("clusterList", "-m", (r"DefaultCluster broker-a \d+ \d+ \d+ \d+",)),
    Works("updateKvConfig", "-s colours -k sky -v blue"),
    Works("deleteKvConfig", "-s colours -k sky"),
    Works("updateOrderConf", "-t {topic} -m put -v broker-a:2"),
    Works("updateOrderConf", "-t {topic} -m get"),
    Works("updateOrderConf", "-t {topic} -m delete"),
    Works("getNamesrvConfig", "", ("={name_server}=", r"listenPort = \d+", "kvConfigPath =")),
    Works("updateNamesrvConfig", "-k deleteTopicWithBrokerRegistration -v false"),
    Works("wipeWritePerm", "-b broker-a", (r"wipe .*\[{name_server}\] OK, \d+",)),
    Works("addWritePerm", "-b broker-a", (r"add .*\[{name_server}\] OK, \d+",)),
    # Messages
    Works("queryMsgById", "-t {topic} -i {offset_message_id}", only=NEW),
    Works("queryMsgById", "-i {offset_message_id}", only=OLD),
    Works("queryMsgByKey", "-t {topic} -k k1"),
    Works("queryMsgByOffset", "-t {topic} -b broker-a -i 1 -o 0"),
    Works("queryMsgByUniqueKey", "-t {topic} -i {message_id}"),
    Works("queryMsgTraceById", "-i {message_id}", ("Pub {producer_group} 127", "Sub {group} 127")),
    Works("queryCq", "-t {topic} -q 1 -i 0 -c 2 -b {broker}"),
    Works("printMsg", "-t {topic}", ("minOffset=0, maxOffset=2", "MSGID: {message_id} ")),
    Works("printMsgByQueue", "-t {topic} -a broker-a -i 1 -p true", ("MSGID: {message_id} ",)),
    # Groups
    Works("updateSubGroup", "-b {broker} -g made -r 5"),
    Works("updateSubGroupList", "-b {broker} -f {groups_file}", only=NEW),
    Works("getConsumerConfig", "-g made"),
    Works("setConsumeMode", "-b {broker} -t {topic} -g made -m PULL", only=NEW),
    Works("deleteSubGroup", "-c DefaultCluster -g made -r true"),
    Works("consumerConnection", "-g {group}"),
    Works(
        "consumerProgress",
        "-g {group}",
        ("{topic} broker-a 0 2 2 0 (0 )?{time}", "Diff Total: 0"),
    ),
    Works(
        "consumerProgress",
        "-g {group} -t {topic} -s true",
        (r"{topic} broker-a 0 2 2 [\d.]+ 0 0 {time}",),
        only=NEW,
    ),
    Works("consumerProgress", "", (r"{group} 1 V5_3_3 PUSH CLUSTERING \d+ 0",)),
    Works(
        "consumerStatus",
        "-g {group}",
        ("1 {client_id} V5_3_3 ", "Same subscription in the same group", "Rebalance OK"),
    ),
    Works(
        "consumerStatus",
        "-g {group} -i {client_id} -s",
        ("#Consumer Subscription#", "{topic} broker-a 0 2", "#Consumer jstack#\nMainThread"),
    ),
    Works("producerConnection", "-g {producer_group} -t {topic}"),
    Works(
        "producer", "-b {broker}", (r"producer group \({producer_group}\) instance : clientId=",)
    ),
    # Topics
    Works("updateTopic", "-b {broker} -t made -r 3 -w 3"),
    Works("updateTopic", "-c DefaultCluster -t made -r 4 -w 4 -o true"),
    Works("updateTopicPerm", "-b {broker} -t made -p 4"),
    Works("updateTopicList", "-b {broker} -f {topics_file}", only=NEW),
    Works("topicList", "", ("^{topic}$", "^TBW102$", "^SCHEDULE_TOPIC_XXXX$")),
    Works("topicList", "-c", ("DefaultCluster {topic} {group}",)),
    Works("topicClusterList", "-t {topic}"),
    Works("topicRoute", "-t {topic}"),
    Works("topicRoute", "-l -t {topic}"),
    Works("topicStatus", "-t {topic}", ("broker-a 0 0 2 {time}", "broker-a 1 0 2 {time}")),
    Works("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2"),
    Works("statsAll", "-t {topic}", (r"{topic} {group} 0 [\d.]+ [\d.]+ \d+ \d+",)),
    Works("deleteTopic", "-c DefaultCluster -t made"),
    # Offsets
    Works("updateSubGroup", "-b {broker} -g copies"),
    Works("cloneGroupOffset", "-s {group} -d copies -t {topic} -o true"),
    Works("resetOffsetByTime", "-t {topic} -g {group} -s 0"),
    Works("resetOffsetByTime", "-t {topic} -g {group} -s now -b {broker} -q 0 -o 1", only=NEW),
    Works("skipAccumulatedMessage", "-t {topic} -g {group}"),
    # Messages once more: given to a consumer, and new ones
    Works(
        "queryMsgById",
        "-t {topic} -i {offset_message_id} -g {group} -d {client_id}",
        ("consumeResult=CR_SUCCESS",),
        only=NEW,
    ),
    Works(
        "queryMsgByUniqueKey",
        "-t {topic} -i {message_id} -g {group} -d {client_id}",
        ("consumeResult=CR_SUCCESS",),
    ),
    Works("sendMessage", "-t {topic} -p hello -k k9 -c UA", (r"broker-a \d SEND_OK {id}",)),
    Works("sendMessage", "-t {topic} -p hello -b broker-a -i 1", ("broker-a 1 SEND_OK {id}",)),
    Works("sendMsgStatus", "-b broker-a -c 2", ("sendStatus=SEND_OK, msgId={id}",)),
    Works("checkMsgSendRT", "-t {topic} -a 2", ("broker-a 0 true ", "broker-a 1 true ")),
    Works(
        "clusterRT",
        "-c DefaultCluster -a 2 -i 1",
        (r"DefaultCluster broker-a [\d.]+ 2 0",),
        until="DefaultCluster",
    ),
    Works(
        "consumeMessage",
        "-t {topic} -g readers -b broker-a -i 0 -o 0 -c 1",
        ("Consume ok", "MSGID: {id}"),
    ),
    # Brokers
    Works(
        "brokerStatus",
        "-b {broker}",
        (
            r"bootTimestamp : {ms}",
            r"putTps : [\d.]+",
            r"getTransfer+edTps : [\d.]+",
            r"msgPutTotalTodayNow : \d+",
            "sendThreadPoolQueueSize : 0",
            r"commitLogDiskRatio : [\d.]+",
            r"runtime : \[ 0 days, 0 hours, ",
        ),
    ),
    Works("brokerConsumeStats", "-b {broker}", (r"{topic} {group} broker-a 0 \d+ \d+ ",)),
    Works("getBrokerConfig", "-b {broker}", ("brokerName = broker-a", "fileReservedTime = 72")),
    Works("updateBrokerConfig", "-b {broker} -k fileReservedTime -v 48"),
    Works("cleanExpiredCQ", "-b {broker}"),
    Works("cleanUnusedTopic", "-b {broker}"),
    Works("deleteExpiredCommitLog", "-b {broker}"),
    # 4.9.7's are at a loss with Apache 5.5.0, which has not all keys of 4.9 any more.
    Works("exportConfigs", "-c DefaultCluster -f {directory}", ("configs.json success",)),
    Works("exportMetadata", "-c DefaultCluster -f {directory}"),
    Works("exportMetrics", "-c DefaultCluster -f {directory}", ("metrics.json success",)),
    Works("haStatus", "-b {broker}", ("#MasterAddr\t{broker}", "#SlaveNum\t0"), only=NEW),
    Works("getColdDataFlowCtrInfo", "-b {broker}", ('"cgColdReadThreshold":3145728',), only=NEW),
    Works("updateColdDataFlowCtrGroupConfig", "-b {broker} -g made -v 1048576", only=NEW),
    Works("removeColdDataFlowCtrGroupConfig", "-b {broker} -g made", only=NEW),
    Works("setCommitLogReadAheadMode", "-b {broker} -m 0", only=NEW),
    Works("switchTimerEngine", "-b {broker} -e F", only=NEW),
    # It goes on in the background, and says what it sees in its log.
    Works("startMonitoring"),
)

CONTROLLER: Final = "a controller is no part of OrbitMQ"
CONTAINER: Final = "a broker container is no part of OrbitMQ"
REPLICATION: Final = "replication is no part of OrbitMQ"
ROCKSDB: Final = "RocksDB is no part of OrbitMQ"
STATIC: Final = "a static topic is no part of OrbitMQ"
ACCESS: Final = "access control is to come later"
LITE: Final = "a lite topic is to come later"
POP: Final = "pop consumption is to come later"

NOT_APPLICABLE: Final = (
    Refused("addBroker", "-b {topics_file} -c {broker}", CONTAINER),
    Refused("removeBroker", "-b DefaultCluster:broker-a:1 -c {broker}", CONTAINER),
    Refused("resetMasterFlushOffset", "-b {broker} -o 0", REPLICATION),
    Refused("getBrokerEpoch", "-b broker-a", CONTROLLER),
    Refused("getControllerConfig", "-a {broker}", CONTROLLER),
    Refused("getControllerMetaData", "-a {broker}", CONTROLLER),
    Refused("getSyncStateSet", "-a {broker} -b broker-a", CONTROLLER),
    Refused("updateControllerConfig", "-a {broker} -k a -v b", CONTROLLER),
    Refused("electMaster", "-a {broker} -b 1 -bn broker-a -c DefaultCluster", CONTROLLER),
    Refused("cleanBrokerMetadata", "-a {broker} -bn broker-a -c DefaultCluster -l", CONTROLLER),
    Refused("checkRocksdbCqWriteProgress", "-c DefaultCluster -n {name_server}", ROCKSDB),
    Refused("rocksDBConfigToJson", "-b {broker}", ROCKSDB),
    Refused("exportPopRecord", "-b {broker}", POP),
    Refused("updateStaticTopic", "-b broker-a -t static -qn 2", STATIC),
    # It asks for what updateStaticTopic could not make.
    Refused("remappingStaticTopic", "-b broker-a -t static", "command failed"),
    Refused("getBrokerLiteInfo", "-b {broker}", LITE),
    # These keep the broker's remark to themselves.
    Refused("getLiteClientInfo", "-c {client_id} -g {group} -p {topic}", "[broker-a] error."),
    Refused("getLiteGroupInfo", "-g {group} -p {topic}", "[broker-a] error."),
    Refused("getLiteTopicInfo", "-p {topic} -l lite", "[broker-a] error."),
    Refused("getParentTopicInfo", "-p {topic}", "[broker-a] error."),
    Refused("triggerLiteDispatch", "-g {group} -p {topic}", "broker-a error"),
    Refused("listUser", "-b {broker}", ACCESS),
    Refused("getUser", "-b {broker} -u somebody", ACCESS),
    Refused("createUser", "-b {broker} -u somebody -p secret", ACCESS),
    Refused("updateUser", "-b {broker} -u somebody -p secret", ACCESS),
    Refused("copyUser", "-f {broker} -t {broker}", ACCESS),
    Refused("deleteUser", "-b {broker} -u somebody", ACCESS),
    Refused("listAcl", "-b {broker}", ACCESS),
    Refused("getAcl", "-b {broker} -s User:somebody", ACCESS),
    Refused("createAcl", "-b {broker} -s User:somebody -r Topic:* -a Pub -d Allow", ACCESS),
    Refused("updateAcl", "-b {broker} -s User:somebody -r Topic:* -a Pub -d Allow", ACCESS),
    Refused("copyAcl", "-f {broker} -t {broker}", ACCESS),
    Refused("deleteAcl", "-b {broker} -s User:somebody", ACCESS),
    Refused("clusterAclConfigVersion", "-b {broker}", ACCESS, OLD),
    Refused("getAclConfig", "-b {broker}", ACCESS, OLD),
    Refused("updateAclConfig", "-b {broker} -a somebody -s secret99", ACCESS, OLD),
    Refused("deleteAclConfig", "-b {broker} -a somebody", ACCESS, OLD),
    Refused("updateGlobalWhiteAddr", "-b {broker} -g 10.0.0.1", ACCESS, OLD),
)

READS_FILES: Final = {
    "dumpCompactionLog": "a file of a compacted topic",
    "exportMetadataInRocksDB": "a RocksDB directory of a broker",
}
"""Commands that ask no server at all, and what they read."""
