#include "systems/muse/system.h"

namespace melete {

System muse_system() {
  System system{"muse", "pictures from words, through tokens of a VQ-GAN"};
  system.trains = {
      {kVqganTask, "Muse's autoencoder: pictures to tokens and back", make_vqgan_recipe, {}},
      {kMaskGitTask, "its transformer: text to the tokens of a picture", make_maskgit_recipe, {}},
  };
  system.generates = {{"muse", "pictures from text", make_muse_generation}};
  return system;
}

}  // namespace melete
