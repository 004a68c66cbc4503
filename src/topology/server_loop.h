// SPDX-License-Identifier: Apache-2.0
//
// serve: a parameter server's life. It receives from all workers, on both lanes, hands every message to a ShardServer
// and sends what that replies, until every worker has said goodbye. The same code on a thread inside a worker, in a
// process of its own and in a SimWorld.
//
// A few messages of a lane are expected ahead of the one that is being received, so that a link is never idle because
// the server has not asked yet; more than that wait at the sender.
#pragma once

#include <slipstream/fabric/fabric.h>

namespace slipstream {

// `net` is a server's endpoint: its rank is net.size() or more. Throws FabricError where a worker is lost or a message
// is refused.
void serve(Fabric& net);

// A worker's last word to all servers. They end when all workers have said it; returns when those of this process have.
void leave_servers(Fabric& net);

}  // namespace slipstream
