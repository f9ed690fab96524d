"""AdminCore: the admin client that both faces delegate to (DefaultMQAdminExtImpl)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbitmq.admin.asker import Asker
from orbitmq.admin.config import AdminConfig
from orbitmq.client.config import make_config
from orbitmq.client.core import ClientCore
from orbitmq.client.instance import ClientInstance
from orbitmq.clock import SYSTEM_CLOCK, Clock


class AdminCore(ClientCore):
    """An admin client without a face; its ``asker`` is there once it was started."""

    def __init__(self, settings: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__("admin client")
        self.config = make_config(AdminConfig, settings)
        self.asker: Asker
        self._clock = clock

    async def bring_up(self) -> None:
        """Get a client instance; nobody is asked yet."""
        self.instance = await ClientInstance.obtain(self.config, clock=self._clock)
        self.asker = Asker(self.instance, self.config)

    def started(self) -> None:
        """Nothing goes on in the background."""

    async def take_down(self) -> None:
        """Give the client instance back; what is under way ends with it."""
        self.lifecycle.begin_shutdown()
        await self.instance.release()

    def running_asker(self) -> Asker:
        """Who asks. Raises ClientStateError unless the client runs."""
        self.lifecycle.check_running()
        return self.asker
