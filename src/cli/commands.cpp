// The table of commands; a new one is an include and a line here.
#include "cli/app.h"
#include "cli/bench_command.h"
#include "cli/codec_command.h"
#include "cli/data_command.h"
#include "cli/doctor_command.h"
#include "cli/generate_command.h"
#include "cli/images_command.h"
#include "cli/inspect_command.h"
#include "cli/joint_embedding_commands.h"
#include "cli/recipe_command.h"
#include "cli/studio_command.h"
#include "cli/train_command.h"
#include "cli/voice_command.h"

namespace melete {

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "trains a model on your recordings", train_command},
      {"recipe", "what a recipe gives: measures finished runs of it", recipe_command},
      {"codec", "recordings to tokens and back, and how good that is beside Opus", codec_command},
      {"images", "pictures to tokens and back, and how good that is beside JPEG and WebP", images_command},
      {"inspect", "what a checkpoint, a .pt or a token file holds; what differs between two",
       inspect_command},
      {"import", "a checkpoint from another program's file", import_command},
      {"export", "a checkpoint as a file for inference, fine-tuning or other programs", export_command},
      {"generate", "makes sound with trained models", generate_command},
      {"voice", "voices kept under a name, to generate with", voice_command},
      {"embed", "recordings or texts to vectors of a joint space", embed_command},
      {"search", "what sounds like these words, or like a recording", search_command},
      {"classify", "names what is heard, by labels of your own", classify_command},
      {"eval", "how good a trained model is: tables over held-out data", eval_command},
      {"data", "index, check, describe and make recordings to train on", data_command},
      {"studio", "a page to watch, hear and compare runs, and to play with them", studio_command},
      {"bench", "step times, parts and % of this machine's peak", bench_command},
      {"doctor", "engine, threads, devices, self-checks, optional programs", doctor_command},
  };
  return table;
}

}  // namespace melete
