// The one training loop, the same alone and in a group of ranks: accumulate, reduce, clip, step, average,
// validate, sample, save, report. Everything random is a function of (seed, step, phase, micro-batch, rank),
// so that a resumed run gives the same bits as an uninterrupted one. No globals: several trainers may live in
// one process.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "dist/group.h"
#include "dist/reducer.h"
#include "nn/draws.h"
#include "run/reporter.h"
#include "train/ema.h"
#include "train/health.h"
#include "train/loss_scale.h"
#include "train/on_track.h"
#include "train/optimiser.h"
#include "train/schedule.h"
#include "train/task.h"
#include "train/trainer_config.h"

namespace melete {

class RunFolder;
struct Checkpoint;

// How levels of chance travel among the figures of a batch, by the name of their loss.
inline const std::string kChancePrefix = "chance of ";

enum class Outcome {
  finished,
  stopped,  // by the flag, after a clean checkpoint
  failed,   // health: see reason
};

struct RunResult {
  Outcome outcome = Outcome::finished;
  std::string reason;
  int64_t step = 0;  // steps done
};

// What a trainer works with; all of it outlives the trainer.
struct TrainerParts {
  Task& task;
  BatchSource& training;
  BatchSource* validation = nullptr;  // none: no validation, no samples
  RunFolder* folder = nullptr;        // none: no checkpoints, no samples
  Reporter* reporter = nullptr;
  Group* group = nullptr;              // none: alone
  nlohmann::ordered_json config = {};  // whole and resolved, stored in every checkpoint
  RunStart about = {};                 // settings table, data lines and threads; the trainer adds the rest
  std::optional<Expectation> expectation = {};  // what the recipe gave where it was measured
};

class Trainer {
 public:
  Trainer(TrainerParts parts, const TrainerConfig& config);
  ~Trainer();

  // From where the run folder's newest usable checkpoint left off; false when it has none.
  bool resume();
  // Until `steps` are done, the flag is set or health gives up. Saves at the end in the first two cases.
  RunResult run(const std::atomic<bool>& stop);

  // One optimiser step of every phase with averaging; validation, samples and checkpoints are run()'s.
  StepReport step();
  // Mean losses over the held-out batches: "online" and, when there is an average, "ema".
  std::vector<ValidationReport> validate();
  void write_samples();
  std::string save();  // the checkpoint's path; empty on every rank but the main one

  Checkpoint checkpoint() const;  // all ranks, when the optimiser is sharded
  void load(const Checkpoint& checkpoint);

  int64_t steps_done() const { return step_; }
  int64_t batches_taken() const { return batches_taken_; }
  const Health& health() const { return health_; }
  Ema* ema() { return ema_ ? &*ema_ : nullptr; }

  // Replaces the seeded draws, for tests that replay recorded ones.
  using DrawsMaker = std::function<std::unique_ptr<Draws>(const StepContext& context, int64_t phase)>;
  void set_draws(DrawsMaker maker) { make_draws_ = std::move(maker); }

 private:
  struct RunningPhase {
    Phase phase;
    std::vector<Optimiser> optimisers;  // one a group
    Schedule schedule;
    std::vector<at::Tensor> parameters;  // of all groups
    bool keep_gradients = false;         // another phase counts them in its norm
    std::string label;                   // "" for the only phase, else its name and a dot
    GradientReducer reducer;
  };
  struct PhaseResult;

  PhaseResult run_phase(size_t index, std::vector<Batch>& batches);
  void check_phases() const;
  Batch fetch(BatchSource& source, int64_t number) const;
  void restore(const TensorMap& tensors);  // model, average, optimisers, the task's own
  bool roll_back();
  void announce();
  RunResult finish(Outcome outcome, const std::string& reason);
  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }
  bool has_folder() const { return has_folder_; }  // the main rank's; others have none of their own
  void check_agreement() const;

  TrainerParts parts_;
  TrainerConfig config_;
  Group alone_;
  Group* group_;
  at::Device device_;
  bool mixed_;  // convolutions and products in mixed_type_
  at::ScalarType mixed_type_;
  LossScale loss_scale_;
  Reporter silent_;
  Reporter* reporter_;
  OnTrack on_track_;
  std::vector<RunningPhase> phases_;
  std::optional<Ema> ema_;
  Health health_;
  DrawsMaker make_draws_;
  Verdict verdict_ = Verdict::good;  // on the last step
  int64_t step_ = 0;
  bool has_folder_ = false;
  int64_t batches_taken_ = 0;  // since origin_
  int64_t origin_ = 0;  // item of the stream that batch 0 began with; moves when batches change in size
  int64_t salt_ = 0;    // changes with every rollback, so that the same draws do not fail again
  int64_t resumed_from_ = -1;
  int64_t saved_step_ = -1;
  bool save_pending_ = false;  // a checkpoint was due in a bad streak and waits for the next good step
};

}  // namespace melete
