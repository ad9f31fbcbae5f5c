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
std::unique_ptr<Benchmark> make_muse_benchmark(const std::string& what);

std::unique_ptr<Exporter> make_vqgan_exporter(const Checkpoint& checkpoint, const std::string& path);
std::unique_ptr<Exporter> make_maskgit_exporter(const Checkpoint& checkpoint, const std::string& path);
ImportedCheckpoint import_vqgan(const PackageSource& source);  // a trainer's package, or weights alone
ImportedCheckpoint import_averaged_vqgan(const PackageSource& source);  // vae.N.ema.pt
ImportedCheckpoint import_maskgit(const PackageSource& source);

}  // namespace melete
