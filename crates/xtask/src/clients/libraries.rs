//! Client libraries, each by a small program in its language.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{ClientFolders, Outcome};
use crate::steps::{output, run};

/// redis-py, in a virtual environment.
pub fn python(folders: &ClientFolders, port: u16) -> Result<Outcome> {
    let environment = folders.download("venv");
    let interpreter = environment.join("bin/python");
    let has_library =
        |interpreter: &Path| output(Command::new(interpreter).args(["-c", "import redis"])).is_ok();
    if !has_library(&interpreter) {
        let made = output(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let installed = made.and_then(|_| {
            output(Command::new(&interpreter).args(["-m", "pip", "install", "--quiet", "redis"]))
        });
        if let Err(error) = installed {
            return Ok(Outcome::Missing(format!("redis-py cannot be installed: {error:#}")));
        }
    }
    run(Command::new(&interpreter).arg(folders.script("check.py")).arg(port.to_string()))?;
    Ok(Outcome::Passed)
}

/// Checks ioredis and node-redis.
pub fn node(folders: &ClientFolders, port: u16) -> Result<Outcome> {
    let scripts = ["ioredis.mjs", "node-redis.mjs"];
    // Packages are found from where a script lies.
    for script in scripts {
        std::fs::copy(folders.script(script), folders.download(script))?;
    }
    if !folders.download("node_modules/ioredis").exists()
        || !folders.download("node_modules/redis").exists()
    {
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        install.arg(folders.download("")).args(["ioredis", "redis"]);
        if let Err(error) = output(&mut install) {
            return Ok(Outcome::Missing(format!(
                "ioredis and node-redis cannot be installed: {error:#}"
            )));
        }
    }
    for script in scripts {
        run(Command::new("node").arg(folders.download(script)).arg(port.to_string()))?;
    }
    Ok(Outcome::Passed)
}

/// Checks go-redis, built here.
pub fn go(folders: &ClientFolders, port: u16) -> Result<Outcome> {
    let module: PathBuf = folders.download("module");
    std::fs::create_dir_all(&module)?;
    for file in ["go.mod", "main.go"] {
        std::fs::copy(folders.script(file), module.join(file))?;
    }
    let binary = folders.download("check");
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command
            .args(arguments)
            .current_dir(&module)
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local");
        command
    };
    if let Err(error) = output(&mut go(&["mod", "download", "all"])) {
        return Ok(Outcome::Missing(format!("go-redis cannot be installed: {error:#}")));
    }
    output(go(&["build", "-o"]).arg(&binary))?;
    run(Command::new(&binary).arg(port.to_string()))?;
    Ok(Outcome::Passed)
}

/// Checks Jedis and Lettuce.
pub fn java(folders: &ClientFolders, port: u16) -> Result<Outcome> {
    let libraries = folders.download("libraries");
    if !libraries.exists() {
        let mut fetch = Command::new("mvn");
        fetch.args(["--quiet", "--batch-mode", "--file"]).arg(folders.script("pom.xml"));
        fetch.arg("dependency:copy-dependencies");
        let mut directory = std::ffi::OsString::from("-DoutputDirectory=");
        directory.push(&libraries);
        if let Err(error) = output(fetch.arg(directory)) {
            return Ok(Outcome::Missing(format!(
                "Jedis and Lettuce cannot be installed: {error:#}"
            )));
        }
    }
    for program in ["JedisCheck.java", "LettuceCheck.java"] {
        let mut java = Command::new("java");
        java.arg("--class-path").arg(libraries.join("*")).arg(folders.script(program));
        run(java.arg(port.to_string()))?;
    }
    Ok(Outcome::Passed)
}
