#include "train/trainer_config.h"

#include "config/schema.h"
#include "core/device.h"

namespace melete {

void describe(Schema& schema, HealthConfig& config) {
  schema
      .option("max_bad_steps", config.max_bad_steps,
              "skipped steps in a row before going back to a checkpoint")
      .at_least(0)
      .unit("steps");
  schema.option("max_rollbacks", config.max_rollbacks, "times to go back before the run stops").at_least(0);
}

void describe(Schema& schema, TrainerConfig& config) {
  schema.option("steps", config.steps, "optimiser steps to take").at_least(1).unit("steps");
  schema.option("accumulate", config.accumulate, "batches whose gradients make one step").at_least(1);
  schema.option("seed", config.seed, "of data order and every random draw");
  schema
      .option("precision", config.precision, "arithmetic of convolutions and matrix products; fp16 on a GPU")
      .one_of({"fp32", "bf16", "fp16"});
  schema.option("tf32", config.tf32,
                "on a GPU, float32 products with 10 bits of mantissa: faster, less exact");
  schema.option("device", config.device, kDeviceHelp);
  schema.option("log_every", config.log_every, "steps between two lines").at_least(1).unit("steps");
  schema
      .option("columns", config.columns,
              "of a line: loss, quality, rate and time, or every figure (metrics.jsonl always has all)")
      .one_of({"main", "all"});
  schema.option("validate_every", config.validate_every, "0: never").at_least(0).unit("steps");
  schema.option("validate_batches", config.validate_batches, "held-out batches of one validation")
      .at_least(1);
  schema.option("sample_every", config.sample_every, "steps between samples to hear and see; 0: never")
      .at_least(0)
      .unit("steps");
  schema.option("save_every", config.save_every, "steps between checkpoints; 0: only at the end")
      .at_least(0)
      .unit("steps");
  schema.option("keep_last", config.keep_last, "checkpoints to keep").at_least(1);
  schema.option("keep_every", config.keep_every, "also keep those at multiples of this step; 0: none")
      .at_least(0)
      .unit("steps");
  schema.section("ema", config.ema, "moving average of the weights");
  schema.section("health", config.health, "what to do when numbers are not finite");
  schema.section("dist", config.dist, "training in several processes, see docs/distributed.md");
}

}  // namespace melete
