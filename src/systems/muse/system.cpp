#include "systems/muse/system.h"

namespace melete {

System muse_system() {
  System system{"muse", "pictures from words, through tokens of a VQ-GAN"};
  system.trains = {
      {kVqganTask, "Muse's autoencoder: pictures to tokens and back", make_vqgan_recipe, make_vqgan_exporter},
      {kMaskGitTask, "its transformer: text to the tokens of a picture", make_maskgit_recipe,
       make_maskgit_exporter},
  };
  system.generates = {{"muse", "pictures from text", make_muse_generation}};
  // A weight that only this kind of file has.
  const std::string upstream = "muse-maskgit-pytorch";
  system.imports = {{upstream, kVqganTask, "enc_dec.encoders.0.weight", import_vqgan},
                    {upstream, kVqganTask, "ema_model.enc_dec.encoders.0.weight", import_averaged_vqgan},
                    {upstream, kMaskGitTask, "transformer.token_emb.weight", import_maskgit}};
  for (const char* name : {kVqganTask, kMaskGitTask})
    system.timings.push_back({name, "a training step", [name] { return make_muse_benchmark(name); }});
  system.timings.push_back({"muse", "pictures from text", [] { return make_muse_benchmark("muse"); }});
  return system;
}

}  // namespace melete
