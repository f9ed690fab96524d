"""The broker's consumer groups for tools: 200, 201, 207, 225, 352, 353, 401, 402.

Follows AdminBrokerProcessor and QueryAssignmentProcessor.setMessageRequestMode.
"""

from __future__ import annotations

import logging

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.handlers.answering import answer, answer_after, answer_table, check_count
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.names import check_group, check_topic
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.admin_bodies import SubscriptionGroupList
from orbitmq.wire.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import DeleteSubscriptionGroupRequestHeader, GroupRequestHeader
from orbitmq.wire.topic_bodies import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GroupForbidden,
    SetMessageRequestModeBody,
    UpdateGroupForbiddenRequestHeader,
)

log = logging.getLogger("orbitmq.broker")


class GroupHandlers:
    """Makes, changes, lists and deletes consumer groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups: GroupTable = broker.groups

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_groups,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group_config,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbidden,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._modes,
        }

    def _create_group(self, command: RemotingCommand, connection: Connection) -> bytes:
        group = SubscriptionGroupConfig.decode(command.body)
        log.info("%s makes or changes consumer group %s", connection.peer, group.group_name)
        self._groups.update([group])
        return encode_response(command, codes.SUCCESS)

    def _create_groups(self, command: RemotingCommand, connection: Connection) -> Answer:
        groups = SubscriptionGroupList.decode(command.body).group_config_list
        check_count("groups", len(groups))
        log.info("%s makes or changes %d consumer groups", connection.peer, len(groups))
        work = self._groups.updating(groups)
        return answer_after(command, connection, work, self._broker.saved.save_changes)

    def _all_groups(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(GetAllSubscriptionGroupRequestHeader)
        groups, config = self._groups, self._broker.config
        if config.enable_split_metadata and header != GetAllSubscriptionGroupRequestHeader():
            size = config.split_metadata_size
            if header.max_group_num is not None:
                size = min(size, header.max_group_num)
            version = (
                DataVersion.decode(header.data_version.encode()) if header.data_version else None
            )
            found = groups.page(version, header.group_seq or 0, size)
            every = groups.forbidden
            forbidden = {name: every[name] for name in found if name in every}
        else:
            found, forbidden = dict(groups.groups), dict(groups.forbidden)
        body = SubscriptionGroupWrapper(found, forbidden, groups.version)
        total = GetAllSubscriptionGroupResponseHeader(total_group_num=len(groups.groups))
        return answer_table(command, connection, body, len(found), total)

    def _group_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(GroupRequestHeader).group
        group = self._groups.find(name)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"this broker has no consumer group {name!r}"
            )
        return answer(command, group)

    def _delete_group(self, command: RemotingCommand, connection: Connection) -> bytes:
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        log.info("%s deletes consumer group %s", connection.peer, header.group_name)
        self._broker.clean_up.delete_group(
            header.group_name, clean_offsets=header.clean_offset or header.remove_offset
        )
        return encode_response(command, codes.SUCCESS)

    def _forbidden(self, command: RemotingCommand, connection: Connection) -> list[bytes]:
        header = command.header(UpdateGroupForbiddenRequestHeader)
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_group(group)
            check_topic(topic)
            log.info("%s: may %s read %s: %s", connection.peer, group, topic, header.readable)
            self._groups.set_readable(group, topic, readable=header.readable)
        return answer(command, GroupForbidden(topic, group, self._groups.may_read(group, topic)))

    def _set_mode(self, command: RemotingCommand, connection: Connection) -> bytes:
        mode = SetMessageRequestModeBody.decode(command.body)
        self._broker.request_modes.set(mode)
        log.info(
            "%s: consumer group %s is to get topic %s by %s",
            connection.peer, mode.consumer_group, mode.topic, mode.mode,
        )  # fmt: skip
        return encode_response(command, codes.SUCCESS)

    def _modes(self, command: RemotingCommand, connection: Connection) -> Answer:
        modes = self._broker.request_modes
        return answer_table(command, connection, modes.snapshot(), len(modes.table))
