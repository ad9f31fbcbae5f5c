// Settings of training in several processes.
#pragma once

#include <cstdint>
#include <string>

namespace melete {

class Schema;

struct DistConfig {
  double timeout_seconds = 600;  // longest wait for the other ranks in one collective
  double connect_seconds = 120;  // longest wait for all ranks to arrive at start
  double heartbeat_seconds = 2;  // how often a rank says where it is
  bool split_batches = false;    // batch_size is the whole batch, not each rank's
  bool shard_optimiser = false;  // ZeRO stage 1: every rank keeps its share of the optimiser's state
  int64_t bucket_mb = 25;        // gradients are reduced in pieces of this size while backward goes on
};

void describe(Schema& schema, DistConfig& config);

}  // namespace melete
