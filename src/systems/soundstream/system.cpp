#include "systems/soundstream/system.h"

#include "systems/soundstream/codec.h"
#include "systems/soundstream/latents.h"
#include "systems/soundstream/load.h"

namespace melete {

System soundstream_system() {
  System system{"soundstream", "neural codec: sound to tokens and back"};
  system.trains = {{"soundstream", "a neural codec", make_soundstream_recipe, make_soundstream_exporter}};
  system.imports = {{"audiolm-pytorch", "soundstream", "encoder.0.conv.weight", import_soundstream}};
  system.timings = {{"soundstream", "a step, its parts, encoding and decoding", make_soundstream_benchmark}};
  system.codecs = {
      {"soundstream", [](const FoundCheckpoint& found, Weights weights) -> std::unique_ptr<Codec> {
         return std::make_unique<SoundStreamCodec>(load_codec(found, weights).model);
       }}};
  system.audio_features = {
      {"soundstream", [](const FoundCheckpoint& found) -> std::unique_ptr<AudioFeatures> {
         return std::make_unique<SoundStreamLatents>(load_codec(found).model);
       }}};
  return system;
}

}  // namespace melete
