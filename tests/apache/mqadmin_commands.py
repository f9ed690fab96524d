"""Every command of Apache's mqadmin: those that work on our broker, and those that cannot.

The tables are also what docs/from-apache.md is held against.
"""

from __future__ import annotations

from typing import NamedTuple

OLD = "4.9.7"
NEW = "5.5.0"


class Works(NamedTuple):
    """A command as it is run, and what its output must hold, as regular expressions.

    ``arguments`` have the names of a scenario in braces (tests/apache/mqadmin_scenario.py).
    ``only`` is the one version that has it so. A command with ``until`` goes on for ever.
    """

    command: str
    arguments: str = ""
    holds: tuple[str, ...] = ()
    only: str | None = None
    until: str | None = None


WORKS = (
    # Name servers
    Works("clusterList", "", (r"DefaultCluster +broker-a +0 +{broker}",)),
    Works("clusterList", "-m"),
    Works("updateKvConfig", "-s colours -k sky -v blue"),
    Works("deleteKvConfig", "-s colours -k sky"),
    Works("updateOrderConf", "-t {topic} -m put -v broker-a:2"),
    Works("updateOrderConf", "-t {topic} -m get"),
    Works("updateOrderConf", "-t {topic} -m delete"),
    Works("getNamesrvConfig"),
    Works("updateNamesrvConfig", "-k deleteTopicWithBrokerRegistration -v false"),
    Works("wipeWritePerm", "-b broker-a"),
    Works("addWritePerm", "-b broker-a"),
    # Topics
    Works("updateTopic", "-b {broker} -t made -r 3 -w 3"),
    Works("updateTopic", "-c DefaultCluster -t made -r 4 -w 4 -o true"),
    Works("updateTopicPerm", "-b {broker} -t made -p 4"),
    Works("updateTopicList", "-b {broker} -f {topics_file}", only=NEW),
    Works("topicList"),
    Works("topicList", "-c"),
    Works("topicClusterList", "-t {topic}"),
    Works("topicRoute", "-t {topic}"),
    Works("topicRoute", "-l -t {topic}", only=NEW),
    Works("topicStatus", "-t {topic}"),
    Works("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2"),
    Works("statsAll", "-t {topic}"),
    Works("deleteTopic", "-c DefaultCluster -t made"),
    # Groups
    Works("updateSubGroup", "-b {broker} -g made -r 5"),
    Works("updateSubGroupList", "-b {broker} -f {groups_file}", only=NEW),
    Works("getConsumerConfig", "-g made"),
    Works("setConsumeMode", "-b {broker} -t {topic} -g made -m PULL", only=NEW),
    Works("deleteSubGroup", "-c DefaultCluster -g made -r true"),
    Works("consumerConnection", "-g {group}"),
    Works("consumerProgress", "-g {group}"),
    Works("consumerProgress", "-g {group} -t {topic} -s true"),
    Works("consumerProgress"),
    Works("consumerStatus", "-g {group}"),
    Works("consumerStatus", "-g {group} -i {client_id} -s"),
    Works("producerConnection", "-g {producer_group} -t {topic}"),
    Works("producer", "-b {broker}"),
    # Messages
    Works("sendMessage", "-t {topic} -p hello -k k9 -c UA"),
    Works("sendMessage", "-t {topic} -p hello -b broker-a -i 1"),
    Works("sendMsgStatus", "-b broker-a -c 2"),
    Works("checkMsgSendRT", "-t {topic} -a 2"),
    Works("clusterRT", "-c DefaultCluster -a 2 -i 1", until="DefaultCluster"),
    Works("consumeMessage", "-t {topic} -g readers -b broker-a -i 0 -o 0 -c 1"),
    Works("queryMsgById", "-t {topic} -i {offset_message_id}"),
    Works("queryMsgById", "-t {topic} -i {offset_message_id} -g {group} -d {client_id}"),
    Works("queryMsgByKey", "-t {topic} -k k1"),
    Works("queryMsgByOffset", "-t {topic} -b broker-a -i 1 -o 0"),
    Works("queryMsgByUniqueKey", "-t {topic} -i {message_id}"),
    Works("queryMsgByUniqueKey", "-t {topic} -i {message_id} -g {group} -d {client_id}"),
    Works("queryMsgTraceById", "-i {message_id}"),
    Works("printMsg", "-t {topic}"),
    Works("printMsgByQueue", "-t {topic} -a broker-a -i 1 -p true"),
    Works("queryCq", "-t {topic} -q 1 -i 0 -c 2 -b {broker}"),
    # Offsets
    Works("cloneGroupOffset", "-s {group} -d copies -t {topic} -o true"),
    Works("resetOffsetByTime", "-t {topic} -g {group} -s 0"),
    Works("resetOffsetByTime", "-t {topic} -g {group} -s now -b {broker} -q 0 -o 1", only=NEW),
    Works("skipAccumulatedMessage", "-t {topic} -g {group}"),
    # Brokers
    Works("brokerStatus", "-b {broker}"),
    Works("brokerConsumeStats", "-b {broker}"),
    Works("getBrokerConfig", "-b {broker}"),
    Works("updateBrokerConfig", "-b {broker} -k fileReservedTime -v 48"),
    Works("cleanExpiredCQ", "-b {broker}"),
    Works("cleanUnusedTopic", "-b {broker}"),
    Works("deleteExpiredCommitLog", "-b {broker}"),
    Works("exportConfigs", "-c DefaultCluster -f {directory}"),
    Works("exportMetadata", "-c DefaultCluster -f {directory}"),
    Works("exportMetrics", "-c DefaultCluster -f {directory}"),
    Works("haStatus", "-b {broker}", only=NEW),
    Works("getColdDataFlowCtrInfo", "-b {broker}", only=NEW),
    Works("updateColdDataFlowCtrGroupConfig", "-b {broker} -g made -v 1048576", only=NEW),
    Works("removeColdDataFlowCtrGroupConfig", "-b {broker} -g made", only=NEW),
    Works("setCommitLogReadAheadMode", "-b {broker} -m 0", only=NEW),
    Works("switchTimerEngine", "-b {broker} -e F", only=NEW),
    Works("startMonitoring"),
    # to be sorted
    Works("addBroker", "-b {topics_file} -c {broker}", only=NEW),
    Works("removeBroker", "-b DefaultCluster:broker-a:1 -c {broker}", only=NEW),
    Works("resetMasterFlushOffset", "-b {broker} -o 0", only=NEW),
    Works("getBrokerEpoch", "-b broker-a", only=NEW),
    Works("getControllerConfig", "-a {broker}", only=NEW),
    Works("getControllerMetaData", "-a {broker}", only=NEW),
    Works("getSyncStateSet", "-a {broker} -b broker-a", only=NEW),
    Works("updateControllerConfig", "-a {broker} -k a -v b", only=NEW),
    Works("electMaster", "-a {broker} -b 1 -bn broker-a -c DefaultCluster", only=NEW),
    Works("cleanBrokerMetadata", "-a {broker} -bn broker-a", only=NEW),
    Works("checkRocksdbCqWriteProgress", "-c DefaultCluster -n {name_server}", only=NEW),
    Works("rocksDBConfigToJson", "-b {broker}", only=NEW),
    Works("exportMetadataInRocksDB", "-p {directory} -t topics", only=NEW),
    Works("exportPopRecord", "-b {broker}", only=NEW),
    Works("dumpCompactionLog", "-f {topics_file}", only=NEW),
    Works("updateStaticTopic", "-b broker-a -t static -qn 2", only=NEW),
    Works("remappingStaticTopic", "-b broker-a -t static", only=NEW),
    Works("getBrokerLiteInfo", "-b {broker}", only=NEW),
    Works("getLiteClientInfo", "-c {client_id} -g {group} -p {topic}", only=NEW),
    Works("getLiteGroupInfo", "-g {group} -p {topic}", only=NEW),
    Works("getLiteTopicInfo", "-p {topic} -l lite", only=NEW),
    Works("getParentTopicInfo", "-p {topic}", only=NEW),
    Works("triggerLiteDispatch", "-g {group} -p {topic}", only=NEW),
    Works("listUser", "-b {broker}", only=NEW),
    Works("getUser", "-b {broker} -u somebody", only=NEW),
    Works("createUser", "-b {broker} -u somebody -p secret", only=NEW),
    Works("updateUser", "-b {broker} -u somebody -p secret", only=NEW),
    Works("copyUser", "-f {broker} -t {broker}", only=NEW),
    Works("deleteUser", "-b {broker} -u somebody", only=NEW),
    Works("listAcl", "-b {broker}", only=NEW),
    Works("getAcl", "-b {broker} -s User:somebody", only=NEW),
    Works("createAcl", "-b {broker} -s User:somebody -r Topic:* -a Pub -d Allow", only=NEW),
    Works("updateAcl", "-b {broker} -s User:somebody -r Topic:* -a Pub -d Allow", only=NEW),
    Works("copyAcl", "-f {broker} -t {broker}", only=NEW),
    Works("deleteAcl", "-b {broker} -s User:somebody", only=NEW),
    Works("clusterAclConfigVersion", "-b {broker}", only=OLD),
    Works("getAclConfig", "-b {broker}", only=OLD),
    Works("updateAclConfig", "-b {broker} -a somebody -s secret99", only=OLD),
    Works("deleteAclConfig", "-b {broker} -a somebody", only=OLD),
    Works("updateGlobalWhiteAddr", "-b {broker} -g 10.0.0.1", only=OLD),
)
