"""The broker's consumer groups for tools: 200, 201, 207, 225, 352. Follows AdminBrokerProcessor."""

from __future__ import annotations

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer, answer_table
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.admin_bodies import SubscriptionGroupList
from orbitmq.wire.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import DeleteSubscriptionGroupRequestHeader, GroupRequestHeader


class GroupHandlers:
    """Makes, changes, lists and deletes consumer groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_groups,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group_config,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
        }

    def _create_group(self, command: RemotingCommand, _connection: Connection) -> bytes:
        self._broker.groups.put(SubscriptionGroupConfig.decode(command.body))
        return encode_response(command, codes.SUCCESS)

    def _create_groups(self, command: RemotingCommand, _connection: Connection) -> bytes:
        groups = SubscriptionGroupList.decode(command.body).group_config_list
        for group in groups:  # all or none
            self._broker.groups.check(group)
        for group in groups:
            self._broker.groups.put(group)
        return encode_response(command, codes.SUCCESS)

    def _all_groups(self, command: RemotingCommand, connection: Connection) -> Answer:
        groups = self._broker.groups
        body = SubscriptionGroupWrapper(
            subscription_group_table=dict(groups.groups), data_version=groups.version
        )
        return answer_table(command, connection, body, len(groups.groups))

    def _group_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(GroupRequestHeader).group
        group = self._broker.groups.find(name)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"this broker has no consumer group {name!r}"
            )
        return answer(command, group)

    def _delete_group(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        self._broker.groups.delete(header.group_name)
        if header.clean_offset:
            self._broker.offsets.forget_group(header.group_name)
            self._broker.statistics.forget_group(header.group_name)
        return encode_response(command, codes.SUCCESS)
