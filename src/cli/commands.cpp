// The table of commands; a new one is an include and a line here.
#include "cli/app.h"
#include "cli/bench_command.h"
#include "cli/codec_command.h"
#include "cli/data_command.h"
#include "cli/doctor_command.h"
#include "cli/train_command.h"

namespace melete {

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "trains a model on your recordings", train_command},
      {"codec", "measures a trained codec on recordings", codec_command},
      {"data", "index, check, describe and make recordings to train on", data_command},
      {"bench", "step times, parts and % of this machine's peak", bench_command},
      {"doctor", "engine, threads, devices, self-checks, optional programs", doctor_command},
  };
  return table;
}

}  // namespace melete
