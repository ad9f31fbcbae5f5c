// What a system tells the rest of the program: a room is this and the files behind it. Whatever lists,
// trains, generates, imports, exports, opens or times models reads the one list in systems.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generate/generation.h"
#include "measure/bench.h"
#include "roles/audio_features.h"
#include "roles/codec.h"
#include "roles/joint_embedding.h"
#include "run/load_weights.h"
#include "train/exporter.h"
#include "train/foreign_package.h"
#include "train/recipe.h"

namespace melete {

// Something that `melete train` knows. Its checkpoints carry its name as their task.
struct Trainable {
  std::string name, about;
  std::function<std::unique_ptr<Recipe>()> recipe;
  // Writes its checkpoints for other programs; none: only as weights of melete's own.
  std::function<std::unique_ptr<Exporter>(const Checkpoint&, const std::string& path)> exporter;
};

// Something that `melete generate` knows.
struct Generator {
  std::string name, about;
  std::function<std::unique_ptr<Generation>()> make;
};

// Files of a Python system that `melete import` reads.
struct ForeignModel {
  std::string from;  // "audiolm-pytorch"
  std::string kind;  // the task that it becomes
  std::string mark;  // a weight that only this kind of model has
  std::function<ImportedCheckpoint(const PackageSource&)> import;
};

// What is timed beyond the training step of its recipes, which `melete bench` times by itself.
struct Timing {
  std::string name, about;
  std::function<std::unique_ptr<Benchmark>()> make;
};

// Checkpoints that can stand behind a role, by their task.
template <class Role>
struct Provider {
  std::string task;
  std::function<std::unique_ptr<Role>(const FoundCheckpoint&)> open;
};

struct CodecProvider {
  std::string task;
  std::function<std::unique_ptr<Codec>(const FoundCheckpoint&, Weights)> open;
};

struct System {
  std::string name, about;
  std::vector<Trainable> trains = {};
  std::vector<Generator> generates = {};
  std::vector<ForeignModel> imports = {};
  std::vector<Timing> timings = {};
  std::vector<CodecProvider> codecs = {};
  std::vector<Provider<AudioFeatures>> audio_features = {};
  std::vector<Provider<JointEmbedding>> joint_embeddings = {};
};

const std::vector<System>& systems();
void add_system(System system);  // for programs, and tests, that bring their own

std::vector<std::string> recipe_names();
const Trainable& find_trainable(const std::string& name);      // a UsageError names the nearest
std::unique_ptr<Recipe> make_recipe(const std::string& name);  // the same

}  // namespace melete
