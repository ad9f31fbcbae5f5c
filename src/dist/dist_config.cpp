#include "dist/dist_config.h"

#include "config/schema.h"

namespace melete {

void describe(Schema& s, DistConfig& c) {
  s.option("timeout_seconds", c.timeout_seconds, "longest wait for the other ranks before a rank gives up")
      .at_least(0.1)
      .unit("s");
  s.option("connect_seconds", c.connect_seconds, "longest wait at start for all ranks to arrive")
      .at_least(0.1)
      .unit("s");
  s.option("heartbeat_seconds", c.heartbeat_seconds, "how often a rank says where it is")
      .at_least(0.05)
      .unit("s");
  s.option("split_batches", c.split_batches, "batch_size is the whole batch, shared out over the ranks");
  s.option("shard_optimiser", c.shard_optimiser,
           "every rank keeps only its share of the optimiser's state (ZeRO stage 1)");
  s.option("bucket_mb", c.bucket_mb, "gradients are reduced in pieces of this size during backward")
      .at_least(1)
      .unit("MB");
}

}  // namespace melete
