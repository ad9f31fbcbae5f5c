// Muse: pictures from words. A VQ-GAN turns pictures into tokens and back, a MaskGit fills in tokens from
// text.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System muse_system();

constexpr const char* kVqganTask = "vqgan";
constexpr const char* kMaskGitTask = "maskgit";

std::unique_ptr<Recipe> make_vqgan_recipe();
std::unique_ptr<Recipe> make_maskgit_recipe();
std::unique_ptr<Generation> make_muse_generation();

}  // namespace melete
